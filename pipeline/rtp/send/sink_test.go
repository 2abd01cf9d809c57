// SPDX-License-Identifier: Apache-2.0

package send

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

func TestTheBooksAddUp(t *testing.T) {
	f := rtptest.Format(t, pipeline.UYVY, 320, 240, 100)
	src := rtptest.NewSource(t, f, 20)
	s := testSink(t, Config{Destinations: []string{"127.0.0.1:5998"}}, f) // no program listens on this port
	close(src.Ready)
	st := rtptest.Run(t, context.Background(), src, s)
	if st.Captured != 20 || st.Delivered+st.Drops() != 20 || st.Dropped["rtp/sink"] != 0 {
		t.Errorf("%+v", st)
	}
	if err := s.Add(at("127.0.0.1:5996")); !errors.Is(err, ErrDestination) {
		t.Errorf("added to a sink that has ended: %v", err)
	}
}

func TestASinkEndsWithItsContext(t *testing.T) {
	f := rtptest.Format(t, pipeline.I420, 320, 240, 100)
	src := rtptest.NewSource(t, f, 0)
	c, addr := listener(t)
	s := testSink(t, Config{Stream: rtp.Stream{Payload: rtp.JPEG}, Destinations: []string{addr}}, f)
	close(src.Ready)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		defer cancel()
		for b, frames := make([]byte, 10000), 0; frames < 2; { // when the second frame ends, the first one was delivered
			n, err := c.Read(b)
			if err != nil {
				return
			}
			if n > 1 && b[1]&0x80 != 0 { // the marker bit
				frames++
			}
		}
	}()
	st := rtptest.Run(t, ctx, src, s)
	if st.Delivered == 0 || st.Captured != st.Delivered+st.Drops() {
		t.Errorf("%+v", st)
	}
}

// watched is a packetizer that records the number of sent packets each time a frame is packetized.
type watched struct {
	rtp.Packetizer
	sink *Sink
	sent []uint64
}

func (w *watched) Packetize(t *rtp.Train, f *pipeline.Frame) error {
	w.sent = append(w.sent, w.sink.Stats().Destinations[0].Frames)
	return w.Packetizer.Packetize(t, f)
}

// The source is faster than the sender, so that the next frame is always available. None of its packets overtakes one
// of the frame being sent.
func TestTheNextFrameIsPacketizedWhileOneIsSent(t *testing.T) {
	rtptest.Need(t, rtptest.Tries(t, func() (err error) {
		c, addr := listener(t)
		f := rtptest.Format(t, pipeline.UYVY, 320, 240, 100)
		src := rtptest.NewSource(t, f, 8)
		f.Rate.Num = 20
		s := testSink(t, Config{Stream: rtp.Stream{Start: testStart(), Checksum: true}, Destinations: []string{addr}}, f)
		w := &watched{s.packer, s, nil}
		s.packer = w
		close(src.Ready)
		if st := rtptest.Run(t, t.Context(), src, s); st.Delivered != 8 {
			t.Errorf("%+v", st)
		}
		for i, sent := range w.sent[1:] {
			if sent > uint64(i) { // or this process had no processor for a frame's time
				err = fmt.Errorf("%d frames had been sent when frame %d was packetized", sent, i+1)
			}
		}
		got := read(t, c, 8*240)
		if len(got) != 8*240 {
			t.Fatalf("%d packets, want %d", len(got), 8*240)
		}
		for i, p := range got {
			if n := binary.BigEndian.Uint16(p[2:]); n != uint16(rtptest.Sequence+i) {
				t.Fatalf("packet %d has the number %d", i, n)
			}
		}
		return err
	}))
}
