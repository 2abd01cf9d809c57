// SPDX-License-Identifier: Apache-2.0

package send

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

var errDamaged = errors.New("damaged")

// sendFilling sends a frame whose lines arrive while it is being sent, up to line end, where it finishes with err. If
// early is true the frame is complete before it is packetized.
func sendFilling(t *testing.T, s *Sink, from *pipeline.Frame, end int, early bool, err error) (failed bool) {
	t.Helper()
	f := &pipeline.Frame{Format: from.Format, Bytes: bytes.Repeat([]byte{0xaa}, len(from.Bytes)), Sequence: from.Sequence}
	f.Times.ExposureStart = from.Times.Shown()
	f.Fill()
	tr := s.trains[0]
	packer := s.packer.(rtp.Slicer)
	tr.filling = s.fills(t.Context(), f)
	if early {
		copy(f.Bytes, from.Bytes)
		f.Finish(nil)
	}
	if err := s.packer.Packetize(tr.Train, f); err != nil {
		t.Fatal(err)
	}
	sent := make(chan bool)
	go func() { sent <- sendTrain(s, tr) }()
	pieces, pitch, gap := 1, from.Format.Stride, 0
	if from.Format.PacketPitch > 0 { // the headers are already there
		pieces, pitch, gap = packer.Packets(1), from.Format.PacketPitch, from.Format.HeaderGap
	}
	for y := 0; y < end && !early; y++ {
		for i := y * pieces; i < (y+1)*pieces; i++ {
			copy(f.Bytes[i*pitch+gap:(i+1)*pitch], from.Bytes[i*pitch+gap:])
		}
		if y%5 == 4 {
			f.Arrive(y + 1)
			time.Sleep(100 * time.Microsecond)
		}
	}
	if !early {
		f.Times.Captured = from.Times.Captured
		f.Finish(err)
	}
	return <-sent
}

// TestSlicesAreTheSamePackets checks that a receiver gets the same packets, byte for byte, and the same checksums, of
// frames sent while they are filling as of complete frames, for every way of sending.
func TestSlicesAreTheSamePackets(t *testing.T) {
	if testing.Short() {
		t.Skip("SHORT: it takes several seconds: make test runs it")
	}
	for _, g := range []sliceCase{
		{width: 1920, height: 20, pixel: pipeline.UYVY},
		{width: 962, height: 21, pixel: pipeline.UYVY},
		{width: 2, height: 2, pixel: pipeline.UYVY},
		{width: 500, height: 40, mtu: 600, pixel: pipeline.UYVY},
		{width: 1920, height: 20, ready: true, pixel: pipeline.UYVY},
		{width: 1920, height: 9, ready: true, pixel: pipeline.UYVP},
		{width: 641, height: 9, pixel: pipeline.RGB24},
	} {
		for _, pacing := range []Pacing{PaceFrame, PaceBurst} {
			for e := Automatic; e <= Single; e++ {
				t.Run(fmt.Sprint(g, pacing, e), func(t *testing.T) { g.compare(t, pacing, e) })
			}
		}
	}
}

type sliceCase struct {
	width, height, mtu int
	ready              bool
	pixel              pipeline.PixelFormat
}

func (g sliceCase) compare(t *testing.T, pacing Pacing, by Way) {
	plain := rtptest.Format(t, g.pixel, g.width, g.height, 100)
	// stream sends four frames, of which the first one is always sent by copying (way.chooseSender).
	stream := func(filling bool) (got [][]byte, sums []rtp.Checksum) {
		conn, addr := listener(t)
		c := Config{
			Stream: rtp.Stream{MTU: g.mtu, Start: testStart(), Checksum: true}, Destinations: []string{addr}, Pacing: pacing, Way: by, Slices: filling,
		}
		f := plain
		if g.ready {
			f, _ = c.PacketReady(f)
		}
		s := testSink(t, c, f)
		for n := range 4 {
			frame := rtptest.Frame(plain, n)
			if g.ready {
				frame = rtptest.PackReady(frame, f)
			}
			if filling && sendFilling(t, s, frame, g.height, n == 2, nil) || !filling && send(t, s, frame) {
				t.Errorf("slices %t: frame %d failed", filling, n)
			}
			if zero := (*s.sender.dests.Load())[0].way.zero; n == 1 && g.ready && by <= ZeroCopy && (zero == nil || zero.next == 0) {
				t.Errorf("slices %t: nothing was sent by zero-copy", filling)
			}
			s.sender.reap()
			sums = append(sums, s.trains[0].Checksum())
		}
		return read(t, conn, int(s.Stats().Packets)), sums
	}
	want, wantSums := stream(false)
	got, sums := stream(true)
	if len(got) != len(want) || len(got) < 4*g.height {
		t.Fatalf("%d packets in slices, %d of whole frames", len(got), len(want))
	}
	for i := range got {
		if !bytes.Equal(got[i], want[i]) {
			t.Fatalf("packet %d of %d differs", i, len(got))
		}
	}
	if !slices.Equal(sums, wantSums) {
		t.Errorf("checksums %+v, want %+v", sums, wantSums)
	}
}

// TestADamagedFrameHasNoMarker checks that nothing of a frame is sent after it is known to be damaged, and that the
// next frame continues with the next sequence number.
func TestADamagedFrameHasNoMarker(t *testing.T) {
	conn, addr := listener(t)
	reports := rtcpOf(t, conn)
	f := rtptest.Format(t, pipeline.UYVY, 1920, 40, 100)
	s := testSink(t, Config{Stream: rtp.Stream{Start: testStart(), Checksum: true}, Destinations: []string{addr}, Slices: true, Pacing: PaceBurst}, f)
	next, all := uint16(rtptest.Sequence&0xffff), 0
	for n, end := range []int{40, 17, 40, 40, 0, 40} {
		why := error(nil)
		if n == 1 || n == 3 || n == 4 { // in the middle, at the very end, before the first line
			why = errDamaged
		}
		sendFilling(t, s, rtptest.Frame(f, n), end, false, why)
		marked, sent := false, 0
		for _, p := range read(t, conn, int(s.Stats().Packets)-all) {
			sent++
			all++
			if seq := uint16(p[2])<<8 | uint16(p[3]); seq != next {
				t.Fatalf("frame %d: sequence number %d, want %d", n, seq, next)
			}
			next++
			marked = marked || p[1]>>7 == 1
		}
		if marked != (why == nil) || errors.Is(s.trains[0].filling.ended, pipeline.ErrDamaged) == marked {
			t.Errorf("frame %d: marker %t, damaged %t", n, marked, s.trains[0].filling.ended != nil)
		}
		app := application(t, reports)
		damage, err := rtp.ParseDamage(app.SubType, app.Name, app.Data)
		if want := (rtp.Damage{Timestamp: s.trains[0].Checksum().Timestamp, Packets: uint32(sent), Sequence: uint64(1000 + n)}); (err == nil) == marked ||
			err == nil && damage != want {
			t.Errorf("frame %d: RTCP says %+v (%v), want %+v", n, damage, err, want)
		}
	}
	if st := s.Stats().Destinations[0]; st.Frames != 3 || st.Cut != 3 || st.Dropped != 0 {
		t.Errorf("%+v", st)
	}
}

// TestADamagedFrameIsCountedOnce checks this also for a destination that had given it up, and without destinations.
func TestADamagedFrameIsCountedOnce(t *testing.T) {
	_, addr := listener(t)
	f := rtptest.Format(t, pipeline.UYVY, 64, 40, 100)
	c := Config{Stream: rtp.Stream{Start: testStart()}, Destinations: []string{addr}, Slices: true, Pacing: PaceBurst}
	s := testSink(t, c, f)
	d := (*s.sender.dests.Load())[0]
	tr := s.trains[0]
	tr.filling = s.fills(t.Context(), rtptest.Frame(f, 0))
	if err := s.packer.Packetize(tr.Train, tr.filling.frame); err != nil {
		t.Fatal(err)
	}
	d.beginTrain(s.trains[0])
	d.giveUp(tr, unix.EMSGSIZE)
	s.sender.abandon(tr, []*destination{d}, errDamaged)
	if st := s.Stats().Destinations[0]; st.Cut != 1 {
		t.Errorf("%+v", st)
	}
	c.Destinations = nil
	s = testSink(t, c, f)
	if sendFilling(t, s, rtptest.Frame(f, 0), 20, false, errDamaged); !errors.Is(s.trains[0].filling.ended, pipeline.ErrDamaged) {
		t.Error("a damaged frame was sent to nobody, and is taken for a whole one")
	}
}

// TestNobodyWaitsForAFrameThatIsSent checks that destinations and readers can be added and removed while a frame is
// being sent, however long the camera takes. Those added get no packets of that frame, those removed no more packets.
func TestNobodyWaitsForAFrameThatIsSent(t *testing.T) {
	stays, addr := listener(t)
	goes, addrGoes := listener(t)
	comes, addrComes := listener(t)
	f := rtptest.Format(t, pipeline.UYVY, 640, 40, 100)
	s := testSink(t, Config{Stream: rtp.Stream{Start: testStart()}, Destinations: []string{addr, addrGoes}, Slices: true, Pacing: PaceBurst}, f)
	reader := s.ReaderOn(func() *Conn { c, _ := connection(t); return c }(), 0)
	frame := rtptest.Frame(f, 0)
	frame.Fill()
	tr := s.trains[0]
	tr.filling = s.fills(t.Context(), frame)
	if err := s.packer.Packetize(tr.Train, frame); err != nil {
		t.Fatal(err)
	}
	sent, changed := make(chan bool), make(chan error)
	go func() { sent <- sendTrain(s, tr) }()
	frame.Arrive(20)
	if got := len(read(t, goes, 20)); got != 20 {
		t.Fatalf("%d packets of 20 lines", got)
	}
	go func() {
		s.sender.reap()
		changed <- errors.Join(reader.Begin(), reader.Close(), s.Add(at(addrComes)), s.Remove(addrGoes))
	}()
	select {
	case err := <-changed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("they wait for the frame")
	}
	frame.Arrive(40)
	frame.Finish(nil)
	if <-sent {
		t.Error("the frame failed")
	}
	for name, tt := range map[string]struct {
		conn *net.UDPConn
		want int
	}{"stays": {stays, 40}, "comes": {comes, 0}, "goes": {goes, 0}} {
		if got := len(read(t, tt.conn, tt.want)); got != tt.want {
			t.Errorf("%s: %d packets, want %d", name, got, tt.want)
		}
	}
	if st := s.Stats().Destinations; len(st) != 2 || st[0].Frames != 1 || st[1].Frames != 0 || st[0].Cut+st[1].Cut != 0 {
		t.Errorf("%+v", st)
	}
}

// TestSlicesFitIntoAReceiversBuffer checks that lines that arrive all at once, or within half the period, are not sent
// faster than a buffer of ST 2110-21 accepts them.
func TestSlicesFitIntoAReceiversBuffer(t *testing.T) {
	_, addr := listener(t)
	f := rtptest.Format(t, pipeline.UYVY, 640, 3000, 50)
	s := testSink(t, Config{Stream: rtp.Stream{Start: testStart()}, Destinations: []string{addr}, Slices: true}, f)
	for n := range 4 {
		frame := rtptest.Frame(f, n)
		frame.Fill()
		tr := s.trains[0]
		tr.filling = s.fills(t.Context(), frame)
		if err := s.packer.Packetize(tr.Train, frame); err != nil {
			t.Fatal(err)
		}
		sent := make(chan bool)
		go func() { sent <- sendTrain(s, tr) }()
		for y := 100; y <= f.Height && n%2 == 1; y += 100 {
			time.Sleep(f.Rate.Period() / 60)
			frame.Arrive(y)
		}
		frame.Arrive(f.Height)
		frame.Finish(nil)
		if <-sent {
			t.Error("the frame failed")
		}
	}
	if got, most := s.Stats().Bucket.Max, int(s.sender.bucket.full)+s.config.Burst; got > most { // a burst may leave slightly early
		t.Errorf("the buffer held up to %d packets, want at most %d", got, most)
	}
}

// TestADamagedFrameLeavesNoGap checks that a reader on a connection, to which packets of a filling frame go in larger
// portions, gets as many packets of a damaged frame as a destination by UDP, so that its sequence numbers have no gap.
func TestADamagedFrameLeavesNoGap(t *testing.T) {
	_, addr := listener(t)
	f := rtptest.Format(t, pipeline.UYVY, 640, 240, 100)
	s := testSink(t, Config{Stream: rtp.Stream{Start: testStart()}, Destinations: []string{addr}, Slices: true, Pacing: PaceBurst}, f)
	conn, far := connection(t)
	r := s.ReaderOn(conn, 0)
	if err := r.Begin(); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(&got, far) })
	for n, end := range []int{240, 100, 240, 33, 239, 240} {
		why := error(nil)
		if end < 240 {
			why = errDamaged
		}
		sendFilling(t, s, rtptest.Frame(f, n), end, false, why)
	}
	if d := r.Stats().Dropped; d > 0 {
		t.Errorf("%d packets were dropped", d)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	reading.Wait()
	packets, next := 0, uint16(rtptest.Sequence&0xffff)
	for b := got.Bytes(); len(b) >= 4; b = b[4+(int(b[2])<<8|int(b[3])):] {
		if b[1] != 0 {
			continue
		}
		if seq := uint16(b[6])<<8 | uint16(b[7]); seq != next {
			t.Fatalf("packet %d has the sequence number %d, want %d", packets, seq, next)
		}
		packets, next = packets+1, next+1
	}
	if want := s.Stats().Destinations[0].Packets; packets == 0 || uint64(packets) != want {
		t.Errorf("%d packets, want %d", packets, want)
	}
}

// TestPause checks that a paused reader gets no packets, and after that starts with the first packet of a frame, which
// First describes.
func TestPause(t *testing.T) {
	f := rtptest.Format(t, pipeline.UYVY, 160, 120, 100)
	s := testSink(t, Config{Stream: rtp.Stream{Start: testStart()}, Pacing: PaceBurst}, f)
	conn, addr := listener(t)
	r, err := s.ReaderTo(at(addr).Addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 4 {
		if err := r.Begin(); err != nil {
			t.Fatal(err)
		}
		send(t, s, rtptest.Frame(f, 3*n))
		first, ok := r.First(time.Minute)
		all := read(t, conn, s.trains[0].Len())
		if len(all) == 0 || !ok {
			t.Fatalf("%d packets, %v", len(all), ok)
		}
		if seq, stamp := binary.BigEndian.Uint16(all[0][2:]), binary.BigEndian.Uint32(all[0][4:]); seq != first.Sequence || stamp != first.Timestamp {
			t.Errorf("the first packet has %d and %d, want %+v", seq, stamp, first)
		}
		r.Pause()
		if send(t, s, rtptest.Frame(f, 3*n+1)) {
			t.Error("the frame failed")
		}
		if more := read(t, conn, 0); len(more) > 0 {
			t.Errorf("%d packets after the pause", len(more))
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
