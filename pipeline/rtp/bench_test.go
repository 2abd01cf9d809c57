package rtp

import (
	"fmt"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// perPacket reports what a packet costs.
func perPacket(b *testing.B, packets int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*packets), "ns/packet")
	b.ReportMetric(float64(b.N*packets)/b.Elapsed().Seconds(), "packets/s")
}

func BenchmarkPacketizeRaw(b *testing.B) {
	f := testFormat(b, pipeline.UYVY, 1920, 1080, 30)
	for _, crc := range []bool{false, true} {
		b.Run(map[bool]string{false: "plain", true: "checksum"}[crc], func(b *testing.B) {
			s := testSink(b, Config{Checksum: crc}, f)
			frame := testFrame(f, 0)
			b.ReportAllocs()
			for b.Loop() {
				if err := s.packer.Packetize(s.trains[0], frame); err != nil {
					b.Fatal(err)
				}
			}
			perPacket(b, s.trains[0].Len())
		})
	}
}

// BenchmarkPacketizeJPEG is image/jpeg in the first place.
func BenchmarkPacketizeJPEG(b *testing.B) {
	f := testFormat(b, pipeline.I420, 960, 540, 10)
	s := testSink(b, Config{Payload: JPEG, Checksum: true}, f)
	frame := testFrame(f, 0)
	b.ReportAllocs()
	for b.Loop() {
		if err := s.packer.Packetize(s.trains[0], frame); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(s.trains[0].bytes), "bytes/frame")
}

// BenchmarkTransmit sends 1080p over the loopback into a socket that nobody reads, so receive work is small.
func BenchmarkTransmit(b *testing.B) {
	_, addr := listener(b)
	f := testFormat(b, pipeline.UYVY, 1920, 1080, 30)
	s := testSink(b, Config{Destinations: []string{addr}, Pacing: PaceBurst, Checksum: true}, f)
	frame := testFrame(f, 0)
	b.ReportAllocs()
	for b.Loop() {
		if err := s.packer.Packetize(s.trains[0], frame); err != nil {
			b.Fatal(err)
		}
		s.sender.Send(s.trains[0])
	}
	perPacket(b, s.trains[0].Len())
}

// BenchmarkReceive feeds 1080p frames to a session: what a packet costs after the kernel.
func BenchmarkReceive(b *testing.B) {
	f := testFormat(b, pipeline.UYVY, 1920, 1080, 30)
	s := testSink(b, Config{Start: testStart()}, f)
	frame := testFrame(f, 0)
	x := newSession(Media{Payload: Raw, PayloadType: 96, Width: f.Width, Height: f.Height}, nil)
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
	perPacket(b, len(wire))
}

// BenchmarkLoopback sends 1080p frames, paced as for 30 frames a second, to a Receiver in the same process, and reports
// how much of it arrives.
func BenchmarkLoopback(b *testing.B) {
	f := testFormat(b, pipeline.UYVY, 1920, 1080, 30)
	s := testSink(b, Config{Destinations: []string{fmt.Sprintf("127.0.0.1:%d", rtptest.EvenPorts(b, 1)[0])}}, f)
	stop := receive(b, s, nil, "")
	frame := testFrame(f, 0)
	for b.Loop() {
		frame.Times.ExposureStart = time.Now()
		send(b, s, frame)
	}
	st := stop()
	b.ReportMetric(float64(st.Frames)/float64(b.N), "arrived")
	b.ReportMetric(float64(st.Lost), "lost")
	perPacket(b, s.trains[0].Len())
}
