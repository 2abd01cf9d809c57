// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"hash/crc32"
	"time"

	"github.com/tegracast/tegracast/fpga"
)

// SinkConfig says how fast a frame sink accepts data.
type SinkConfig struct {
	Rate   int  // bytes per second; 0: no limit
	Paused bool // accept nothing
}

func (c *SinkConfig) check() error {
	if c.Rate < 0 {
		return fmt.Errorf("model: a frame sink of %d bytes a second, want 0 (no limit) or more", c.Rate)
	}
	return nil
}

// ReceivedStats are the counters of a frame sink. A packet is a frame: pixels, then a trailer (docs/fpga-interface.md).
type ReceivedStats struct {
	Good       uint64 // frames that are correct, and have a higher sequence number than the run's previous one, if any
	OutOfOrder uint64 // frames that are correct except for the sequence number
	Bad        uint64 // frames with an invalid trailer, or a wrong length or CRC
	Missing    uint64 // sequence numbers skipped within runs
	Aborted    uint64 // frames cut off because the channel stopped or was reset
	Bytes      uint64 // all bytes received, including trailers and bad frames
	Sequence   uint64 // of the latest frame that was not bad
	LastBad    string // what was wrong with the latest bad frame; "" if there was none
}

// frameSink checks the frames that arrive over an H2C stream channel. Guarded by Device.mu.
type frameSink struct {
	d       *Device
	e       *engine
	cfg     SinkConfig
	next    time.Time // when the sink will accept data again
	waiting bool      // a timer will wake the engine
	stats   ReceivedStats

	packets uint64                 // begun since the device was created
	begun   bool                   // a packet has begun
	ordered bool                   // stats.Sequence belongs to this run
	length  int                    // of the packet so far, in bytes
	crc     uint32                 // of its bytes, except those in tail
	tail    [fpga.TrailerSize]byte // last bytes of the packet so far
	ntail   int                    // number of bytes in tail
}

// Received returns the counters of an H2C channel's frame sink since the device was created, or the zero value if there
// is no sink.
func (d *Device) Received(channel int) ReceivedStats {
	d.mu.Lock()
	defer d.mu.Unlock()
	if channel < 0 || channel >= len(d.h2c) || d.h2c[channel].frames == nil {
		return ReceivedStats{}
	}
	return d.h2c[channel].frames.stats
}

// SetSink changes how fast the frame sink of an H2C channel accepts data.
func (d *Device) SetSink(channel int, cfg SinkConfig) error {
	if err := cfg.check(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if channel < 0 || channel >= len(d.h2c) || d.h2c[channel].frames == nil {
		return fmt.Errorf("model: H2C channel %d has no frame sink", channel)
	}
	s := d.h2c[channel].frames
	s.cfg, s.next = cfg, time.Time{}
	s.e.kick()
	return nil
}

// beginPacket begins a packet, unless one has begun. It is called when the engine has a descriptor.
func (s *frameSink) beginPacket() {
	if !s.begun {
		s.begun = true
		s.e.beginUnit(s.packets, 0)
		s.packets++
	}
}

// room implements streamSink. A limited rate is applied in pieces of at most 10 ms, but of at least BeatBytes.
func (s *frameSink) room() int {
	switch {
	case s.cfg.Paused:
		return 0
	case s.cfg.Rate == 0:
		return fifoBytes
	}
	if wait := s.next.Sub(s.d.clock.Now()); wait > 0 {
		if !s.waiting {
			s.waiting = true
			s.d.after(wait, s.resume)
		}
		return 0
	}
	return max(BeatBytes, min(fifoBytes, s.cfg.Rate/100&^(BeatBytes-1)))
}

func (s *frameSink) resume() {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.waiting = false
	s.e.kick()
}

// push implements streamSink. It keeps the last bytes, which may be the trailer.
func (s *frameSink) push(p []byte, eop bool) {
	if s.cfg.Rate > 0 {
		s.next = s.d.clock.Now().Add(time.Duration(float64(len(p)) / float64(s.cfg.Rate) * 1e9))
	}
	s.stats.Bytes += uint64(len(p))
	s.length += len(p)
	if pixels := s.ntail + len(p) - len(s.tail); pixels > 0 {
		old := min(pixels, s.ntail)
		s.sum(s.tail[:old])
		s.ntail = copy(s.tail[:], s.tail[old:s.ntail])
		s.sum(p[:pixels-old])
		p = p[pixels-old:]
	}
	s.ntail += copy(s.tail[s.ntail:], p)
	if eop {
		s.endPacket()
		s.clear()
	}
}

func (s *frameSink) sum(p []byte) {
	s.crc = crc32.Update(s.crc, crc32.MakeTable(crc32.Castagnoli), p)
}

func (s *frameSink) endPacket() {
	t, err := fpga.ParseTrailer(s.tail[:s.ntail])
	pixels := s.length - s.ntail
	switch {
	case err != nil:
		s.bad(err.Error())
	case t.Bytes != uint64(pixels):
		s.bad(fmt.Sprintf("frame %d has %d pixel bytes, its trailer says %d", t.Sequence, pixels, t.Bytes))
	case t.PixelCRC != s.crc:
		s.bad(fmt.Sprintf("frame %d has CRC-32C %#08x, its trailer says %#08x", t.Sequence, s.crc, t.PixelCRC))
	case s.ordered && t.Sequence <= s.stats.Sequence:
		s.stats.OutOfOrder++
		s.stats.Sequence = t.Sequence
	default:
		s.stats.Good++
		if s.ordered {
			s.stats.Missing += t.Sequence - s.stats.Sequence - 1
		}
		s.ordered, s.stats.Sequence = true, t.Sequence
	}
}

func (s *frameSink) bad(why string) { s.stats.Bad, s.stats.LastBad = s.stats.Bad+1, why }

func (s *frameSink) clear() { s.begun, s.length, s.crc, s.ntail = false, 0, 0, 0 }

// detach implements streamSink. A partial packet is lost, and sequence numbers may restart.
func (s *frameSink) detach() {
	if s.length > 0 {
		s.stats.Aborted++
	}
	s.clear()
	s.ordered = false
}

// reset implements streamSink.
func (s *frameSink) reset() {
	s.detach()
	s.next, s.waiting = time.Time{}, false
}
