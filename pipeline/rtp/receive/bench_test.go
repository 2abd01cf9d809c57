// SPDX-License-Identifier: Apache-2.0

package receive

import (
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// BenchmarkReceive feeds 1080p frames to a stream, to measure the cost of a packet after the kernel.
func BenchmarkReceive(b *testing.B) {
	f := rtptest.Format(b, pipeline.UYVY, 1920, 1080, 30)
	s := testSender(b, rtp.Stream{Start: testStart()}, f)
	frame := rtptest.Frame(f, 0)
	x := testStream(b, rtp.Media{Payload: rtp.Raw, PayloadType: 96, Width: f.Width, Height: f.Height}, nil)
	wire := packets(b, s, frame)
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		frame.Times.ExposureStart = frame.Times.ExposureStart.Add(time.Second / 30)
		wire = packets(b, s, frame)
		b.StartTimer()
		for _, p := range wire {
			x.packet(p, now)
		}
	}
	if st := x.snapshot(); st.Frames != uint64(b.N) || st.Lost != 0 {
		b.Fatalf("%+v", st)
	}
	rtptest.PerPacket(b, len(wire))
}
