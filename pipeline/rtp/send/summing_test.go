// SPDX-License-Identifier: Apache-2.0

package send

import (
	"net"
	"testing"
	"time"

	"github.com/pion/rtcp"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// rtcpOf listens for the RTCP packets of the stream that c receives.
func rtcpOf(t *testing.T, c *net.UDPConn) *net.UDPConn {
	t.Helper()
	reports, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: c.LocalAddr().(*net.UDPAddr).Port + 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reports.Close() })
	return reports
}

// application returns the APP packet at the end of the next compound.
func application(t *testing.T, reports *net.UDPConn) *rtcp.ApplicationDefined {
	t.Helper()
	b := make([]byte, 2000)
	_ = reports.SetReadDeadline(time.Now().Add(time.Minute))
	n, err := reports.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	all, err := rtcp.Unmarshal(b[:n])
	if err != nil {
		t.Fatal(err)
	}
	return all[len(all)-1].(*rtcp.ApplicationDefined)
}

// A checksum delays no packet, however long it takes, and the frame is not returned before it is computed. This also
// holds for a filling frame whose lines had all arrived when its turn came.
func TestPacketsDoNotWaitForTheChecksum(t *testing.T) {
	t.Run("whole", func(t *testing.T) { packetsDoNotWait(t, false) })
	t.Run("fills", func(t *testing.T) { packetsDoNotWait(t, true) })
}

func packetsDoNotWait(t *testing.T, fills bool) {
	c, addr := listener(t)
	reports := rtcpOf(t, c)
	f := rtptest.Format(t, pipeline.UYVY, 320, 240, 100)
	s := testSink(t, Config{Stream: rtp.Stream{Checksum: true}, Destinations: []string{addr}, Slices: fills}, f)
	s.sender.sums.end()
	s.sender.sums = summing{todo: make(chan *train, 1)} // waits for this test
	sent := make(chan bool)
	go func() {
		if fills {
			sent <- sendFilling(t, s, rtptest.Frame(f, 0), f.Height, true, nil)
		} else {
			sent <- send(t, s, rtptest.Frame(f, 0))
		}
	}()
	var sum *train
	select {
	case sum = <-s.sender.sums.todo:
	case <-sent:
		t.Fatal("the sender has summed the frame itself")
	}
	if got := read(t, c, 240); len(got) != 240 {
		t.Errorf("%d packets came before the checksum, want 240", len(got))
	}
	select {
	case <-sent:
		t.Error("the frame is given back while its checksum is computed")
	default:
	}
	sum.sum()
	s.sender.sums.under.Store(false)
	s.wake()
	if <-sent {
		t.Error("failed")
	}
	app := application(t, reports)
	got, err := rtp.ParseChecksum(app.SubType, app.Name, app.Data)
	if want := rtp.CRC(rtptest.Lines(rtptest.Frame(f, 0))); err != nil || got.CRC != want {
		t.Errorf("CRC %#x, want %#x: %v", got.CRC, want, err)
	}
}

// Trains without destinations are not summed, neither before nor after the end.
func TestNobodyToSendToNeedsNoChecksum(t *testing.T) {
	f := rtptest.Format(t, pipeline.UYVY, 320, 240, 100)
	s := testSink(t, Config{Stream: rtp.Stream{Checksum: true}}, f)
	for n := range 3 {
		send(t, s, rtptest.Frame(f, n))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if sendTrain(s, s.trains[0]) {
		t.Error("sent after the end")
	}
}

// TestAFrameOfAGroupIsReported checks that the number of a frame's group follows the frame, with and without checksums.
func TestAFrameOfAGroupIsReported(t *testing.T) {
	for _, checksum := range []bool{false, true} {
		c, addr := listener(t)
		reports := rtcpOf(t, c)
		f := rtptest.Format(t, pipeline.UYVY, 320, 240, 100)
		s := testSink(t, Config{Stream: rtp.Stream{Checksum: checksum}, Destinations: []string{addr}}, f)
		for n := range uint64(3) {
			frame := rtptest.Frame(f, int(n))
			frame.Sequence, frame.Group = n, 1<<40+n
			send(t, s, frame)
			app := application(t, reports)
			if got, err := rtp.ParseGroup(app.SubType, app.Name, app.Data); err != nil || got.Number != 1<<40+n || got.Sequence != n {
				t.Errorf("checksum %t: frame %d: %+v %v", checksum, n, got, err)
			}
		}
	}
}
