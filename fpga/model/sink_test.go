// SPDX-License-Identifier: Apache-2.0

package model

import (
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/fpga"
)

// sinkHost sends frames of the test sensor to the frame sink of H2C channel 0.
type sinkHost struct {
	*host
	clock  *VirtualClock
	sensor *Sensor
	list   uint64
	data   uint64
}

func newSinkHost(t *testing.T, cfg SinkConfig) *sinkHost {
	s := &sinkHost{clock: virtual(), sensor: smallSensor(t, 64, 4)}
	s.host = newHost(t, func(b Bus) Config {
		return Config{
			Bus: b, Clock: s.clock, H2C: []Interface{Stream}, C2H: []Interface{MemoryMapped}, Sinks: map[int]SinkConfig{0: cfg},
		}
	})
	s.list, s.data = s.alloc(4096), s.alloc(4096)
	s.startDevice()
	return s
}

// packet returns frame seq with its trailer.
func (s *sinkHost) packet(seq uint64, change func(*fpga.Trailer)) []byte {
	cfg := s.sensor.Config()
	b := make([]byte, s.sensor.FrameBytes())
	s.sensor.Frame(seq, b)
	tr := fpga.Trailer{
		Sequence: seq, Width: uint32(cfg.Width), Height: uint32(cfg.Height), Stride: uint32(cfg.Width * 2), Format: cfg.Format,
		Bytes: uint64(len(b)), Valid: uint64(len(b)), PixelCRC: fpga.PixelCRC(b),
	}
	if change != nil {
		change(&tr)
	}
	b, _ = tr.AppendBinary(b)
	return b
}

// startPackets sends packets in one run of the channel, in pieces of 112 bytes, which split the trailers at arbitrary
// places.
func (s *sinkHost) startPackets(packets ...[]byte) {
	s.t.Helper()
	var list []desc
	at := s.data
	for _, p := range packets {
		s.writeMemory(at, p)
		for len(p) > 0 {
			n := min(112, len(p))
			x := desc{length: uint32(n), src: at}
			if p = p[n:]; len(p) == 0 {
				x.control = 0x10
			}
			list = append(list, x)
			at += uint64(n)
		}
	}
	list[len(list)-1].control |= 1
	s.send(list)
}

func (s *sinkHost) send(list []desc) {
	s.host.list(s.list, 0, list)
	s.w(0x0c, 1)
	s.first(0x4000, s.list, 0)
	s.w(0x04, logAll|1)
}

func (s *sinkHost) want(want ReceivedStats) {
	s.t.Helper()
	s.idle(0)
	got := s.d.Received(0)
	if !strings.Contains(got.LastBad, want.LastBad) {
		s.t.Errorf("%q, want %q", got.LastBad, want.LastBad)
	}
	if got.Bytes, got.LastBad, want.LastBad = 0, "", ""; got != want {
		s.t.Errorf("received %+v, want %+v", got, want)
	}
}

func TestFrameSink(t *testing.T) {
	s := newSinkHost(t, SinkConfig{})
	s.startPackets(s.packet(5, nil), s.packet(6, nil))
	s.want(ReceivedStats{Good: 2, Sequence: 6})
	s.startPackets(s.packet(1, nil), s.packet(4, nil), s.packet(4, nil)) // a new run: sequence numbers may restart
	s.want(ReceivedStats{Good: 4, Missing: 2, OutOfOrder: 1, Sequence: 4})
	flip := s.packet(5, nil)
	flip[300] ^= 1
	s.startPackets(flip)
	s.want(ReceivedStats{Good: 4, Missing: 2, OutOfOrder: 1, Bad: 1, Sequence: 4, LastBad: "frame 5 has CRC-32C"})
	s.startPackets(s.packet(6, nil)[:160])
	s.want(ReceivedStats{Good: 4, Missing: 2, OutOfOrder: 1, Bad: 2, Sequence: 4, LastBad: "magic"})
	short := s.packet(7, nil)
	s.startPackets(append(short[:64:64], short[128:]...))
	s.want(ReceivedStats{Good: 4, Missing: 2, OutOfOrder: 1, Bad: 3, Sequence: 4, LastBad: "frame 7 has 448 pixel bytes, its trailer says 512"})
	s.startPackets(s.packet(8, nil)[:48])
	s.want(ReceivedStats{Good: 4, Missing: 2, OutOfOrder: 1, Bad: 4, Sequence: 4, LastBad: "48 bytes, want 128"})
	s.writeMemory(s.data, s.packet(9, nil))
	s.send([]desc{{length: 64, src: s.data, control: 1}}) // without an end
	s.idle(0)
	s.w(0x0c, 1)
	s.want(ReceivedStats{Good: 4, Missing: 2, OutOfOrder: 1, Bad: 4, Aborted: 1, Sequence: 4, LastBad: "48 bytes"})
	if got := s.d.Received(0).Bytes; got != 2*640+3*640+640+160+576+48+64 {
		t.Errorf("%d bytes", got)
	}
	if s.d.Received(1) != (ReceivedStats{}) || s.d.SetSink(1, SinkConfig{}) == nil || s.d.SetSink(0, SinkConfig{Rate: -1}) == nil {
		t.Error("a sink that is not there")
	}
}

func TestFrameSinkBackPressure(t *testing.T) {
	s := newSinkHost(t, SinkConfig{Paused: true})
	s.startPackets(s.packet(0, nil))
	s.stays("paused", func() bool { return s.r(0x48) == 0 && s.r(0x40)&1 == 1 })
	if err := s.d.SetSink(0, SinkConfig{Rate: 6400}); err != nil { // 640 bytes in 100 ms
		t.Fatal(err)
	}
	for range 9 {
		s.clock.Advance(10 * time.Millisecond)
		time.Sleep(2 * time.Millisecond)
	}
	if got := s.d.Received(0); got.Good != 0 || got.Bytes < 300 {
		t.Errorf("after 90 ms: %+v", got)
	}
	for range 30 {
		s.clock.Advance(10 * time.Millisecond)
		time.Sleep(time.Millisecond)
	}
	s.want(ReceivedStats{Good: 1})
}

// Faults on the way to a sink: frames are the opportunities.
func TestFrameSinkFaults(t *testing.T) {
	s := newSinkHost(t, SinkConfig{})
	s.startPackets(s.packet(0, nil))
	s.want(ReceivedStats{Good: 1})
	s.inject(F1)
	s.startPackets(s.packet(1, nil))
	s.happened(F1, 1)
	s.w(0x0c, 1)
	s.idle(0)
	s.inject(F10)
	s.startPackets(s.packet(1, nil))
	s.idle(0)
	if status := s.r(0x40); status != 1<<9 {
		t.Errorf("status %#x, want read_error", status)
	}
	s.startPackets(s.packet(1, nil))
	s.idle(0)
	got := s.d.Received(0)
	if log := s.d.FaultLog(); got.Good != 2 || got.Bad != 0 || log[0].Opportunity != 1 || log[1].Opportunity != 2 {
		t.Errorf("%+v, %v", got, log)
	}
}
