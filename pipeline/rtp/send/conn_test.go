// SPDX-License-Identifier: Apache-2.0

package send

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// connection returns a Conn with small buffers and its other end.
func connection(t *testing.T) (*Conn, *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	far, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	near, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(near.(*net.TCPConn).SetWriteBuffer(32<<10), far.(*net.TCPConn).SetReadBuffer(64<<10)); err != nil {
		t.Fatal(err)
	}
	c, err := NewConn(near.(*net.TCPConn))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return c, far.(*net.TCPConn)
}

// TestConnKeepsItsFraming checks that a slow reader that reads in small pieces, so that frames are cut and answers are
// inserted, gets only whole packets, in order and with the right bytes, and whole answers.
func TestConnKeepsItsFraming(t *testing.T) {
	for _, ready := range []bool{false, true} {
		rtptest.Need(t, rtptest.Tries(t, func() error {
			if cut := keepFraming(t, ready); cut == 0 || cut == 60 {
				return fmt.Errorf("%d of 60 frames were cut", cut)
			}
			return nil
		}))
	}
}

// keepFraming sends 60 frames and returns how many were cut.
func keepFraming(t *testing.T, ready bool) (cut uint64) {
	t.Helper()
	f := rtptest.Format(t, pipeline.UYVY, 320, 240, 100)
	c := Config{Stream: rtp.Stream{Start: testStart(), MTU: 700}, Pacing: PaceBurst}
	frame := rtptest.Frame(f, 0)
	if ready {
		packed, ok := c.PacketReady(f)
		if !ok {
			t.Fatal("no packet-ready layout")
		}
		frame = rtptest.PackReady(frame, packed)
		f = packed
	}
	s := testSink(t, c, f)
	conn, far := connection(t)
	r := s.ReaderOn(conn, 4)
	_ = conn.Conn.(*net.TCPConn).SetWriteBuffer(32 << 10) // undoes the larger size set for the reader
	if err := r.Begin(); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	var reading sync.WaitGroup
	reading.Go(func() {
		for piece := make([]byte, 1999); ; {
			n, err := far.Read(piece[:1+rand.IntN(len(piece))])
			got.Write(piece[:n])
			if err != nil {
				return
			}
			if got.Len() > 500_000 && got.Len()%7 == 0 { // so that the first frames come whole
				time.Sleep(time.Millisecond)
			}
		}
	})
	answer := []byte("RTSP/1.0 200 OK\r\n\r\n")
	var sent [][]byte
	for n := range 60 {
		sent = append(sent, packets(t, s, frame)...)
		sendTrain(s, s.trains[0])
		if n%4 == 0 {
			if _, err := conn.Write(answer); err != nil {
				t.Fatal(err)
			}
		}
	}
	cut = r.Stats().Cut
	if _, err := conn.Write(answer); err != nil { // follows the rest of the last packet
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	reading.Wait()
	checkFraming(t, got.Bytes(), sent, answer, r.Stats().Packets)
	return cut
}

// checkFraming parses the data that a reader received.
func checkFraming(t *testing.T, b []byte, sent [][]byte, answer []byte, want uint64) {
	t.Helper()
	answers, next, taken := 0, 0, uint64(0)
	for len(b) > 0 {
		if bytes.HasPrefix(b, answer) {
			answers, b = answers+1, b[len(answer):]
			continue
		}
		if len(b) < 4 || b[0] != '$' || b[1] != 4 && b[1] != 5 {
			t.Fatalf("neither a packet nor an answer: % x", b[:min(len(b), 16)])
		}
		size := int(b[2])<<8 | int(b[3])
		if len(b) < 4+size {
			t.Fatalf("%d bytes of a packet of %d", len(b)-4, size)
		}
		if b[1] == 4 {
			for taken++; next < len(sent) && !bytes.Equal(sent[next], b[4:4+size]); next++ {
			}
			if next == len(sent) {
				t.Fatal("a packet that was not sent, or out of order")
			}
		}
		b = b[4+size:]
	}
	if answers != 16 || taken != want {
		t.Errorf("%d answers, %d packets of %d", answers, taken, want)
	}
}

// TestConnDropsWhoTakesNothing checks that the sender does not wait for a reader that accepts no data, skips whole
// frames for it, and finally closes its connection.
func TestConnDropsWhoTakesNothing(t *testing.T) {
	f := rtptest.Format(t, pipeline.UYVY, 640, 480, 100)
	s := testSink(t, Config{Stream: rtp.Stream{Start: testStart()}, Pacing: PaceBurst}, f)
	conn, far := connection(t)
	r := s.ReaderOn(conn, 0)
	if err := r.Begin(); err != nil {
		t.Fatal(err)
	}
	packets(t, s, rtptest.Frame(f, 0))
	for range 20 {
		sendTrain(s, s.trains[0])
	}
	if st := r.Stats(); st.Cut == 0 || conn.Stalled() {
		t.Fatalf("%+v, stalled %v", st, conn.Stalled())
	}
	conn.idle = time.Now().Add(-2 * stallLimit)
	sendTrain(s, s.trains[0])
	if !conn.Stalled() {
		t.Fatal("the connection is open still")
	}
	if _, err := io.Copy(io.Discard, far); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Log(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// TestAPausedReaderCountsForNothing checks that frames that reach nobody fail, beside a paused reader as without it.
func TestAPausedReaderCountsForNothing(t *testing.T) {
	for _, paused := range []bool{false, true} {
		_, addr := listener(t)
		f := rtptest.Format(t, pipeline.UYVY, 320, 240, 20)
		s := testSink(t, Config{Destinations: []string{addr}, Pacing: PaceBurst}, f)
		stall(t, (*s.sender.dests.Load())[0])
		if paused {
			conn, _ := connection(t)
			r := s.ReaderOn(conn, 0)
			if err := r.Begin(); err != nil {
				t.Fatal(err)
			}
			r.Pause()
		}
		if err := s.packer.Packetize(s.trains[0].Train, rtptest.Frame(f, 0)); err != nil {
			t.Fatal(err)
		}
		failed := false
		for range 5 { // the first ones fill the socket
			failed = sendTrain(s, s.trains[0])
		}
		if !failed {
			t.Errorf("beside a paused reader %t: the frame counts as sent", paused)
		}
	}
}
