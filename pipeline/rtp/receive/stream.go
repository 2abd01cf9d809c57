// SPDX-License-Identifier: Apache-2.0

package receive

import (
	"net/netip"
	"time"

	"github.com/pion/rtcp"
	pionrtp "github.com/pion/rtp"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
)

// A stream is the state of one received stream (RFC 3550 §6.4, A.1, A.3, A.8). It knows no sockets: packets are fed.
type stream struct {
	media   rtp.Media
	depack  depacketizer
	onFrame func([]byte, FrameInfo)
	format  pipeline.Format

	stopped bool // nothing counts but what belongs before the highest number
	locked  bool // to ssrc
	ssrc    uint32
	heard   time.Time // from ssrc
	header  pionrtp.Header
	seq     sequence
	joined  bool // the first frame has begun
	open    [2]assembly
	closed  bool   // any frame
	newest  uint32 // timestamp among the closed ones
	told    bool   // by the sender, of the damage of a frame
	spoilt  uint32 // timestamp of the last such frame
	jitter  uint32 // in 1/16 of a clock tick (RFC 3550 A.8)
	transit uint32
	timed   bool
	sr      senderReport
	rival   rival
	rr      reporter
	verify  verifier
	latency pipeline.Histogram
	stats   Stats
}

// senderReport is the last one.
type senderReport struct {
	at   time.Time // when it came; zero: none
	ntp  uint64
	rtp  uint32
	from netip.AddrPort
}

// silence is how long an SSRC must be silent before another one takes its place.
const silence = 500 * time.Millisecond

// staleFrames is how far back a timestamp is late; further back the sender's clock has jumped.
const staleFrames = 10 * rtp.ClockRate

func newStream(m rtp.Media, onFrame func([]byte, FrameInfo)) (*stream, error) {
	f, err := m.Format()
	if err != nil {
		return nil, err
	}
	s := &stream{media: m, depack: newDepacketizer(m, f), onFrame: onFrame, format: f, rr: newReporter()}
	if n := s.frameBytes(); n <= maxReserve {
		for i := range s.open {
			s.open[i].mem = make([]byte, n)
			touch(s.open[i].mem)
		}
	}
	return s, nil
}

// maxReserve is the size of the largest frame that gets its memory before it comes.
const maxReserve = 256 << 20

// frameBytes is the size of a raw frame; of others 0.
func (s *stream) frameBytes() int {
	if s.media.Payload != rtp.Raw {
		return 0
	}
	return s.format.Pixel.LineBytes(s.format.Width) * s.format.Height
}

// touch makes the kernel give pages to b, which it does at the first write: while packets come, that would hold them up.
func touch(b []byte) {
	for i := 0; i < len(b); i += 4096 {
		b[i] = 0
	}
}

// packet takes an RTP packet that came at now.
func (s *stream) packet(b []byte, now time.Time) {
	if len(b) > 1 && b[1] >= 192 && b[1] <= 223 { // RTCP (RFC 5761 §4): a sender looks how this port is reached
		return
	}
	number, payload, fault := s.read(b, now)
	if s.stopped && (fault != nil || !s.seq.misses(number)) {
		return
	}
	if fault == nil {
		switch s.seq.update(number) {
		case duplicate:
			fault = &s.stats.Duplicates
		case jumped:
			fault = &s.stats.Foreign
		case reordered:
			s.stats.Reordered++
		}
	}
	if fault != nil {
		*fault++
		return
	}
	s.heard, s.rival.then = now, s.rival.came
	s.stats.LastPacket, s.stats.Ended = now, false
	s.stats.Packets++
	s.stats.Bytes += uint64(len(b))
	s.time(now)
	s.place(number, payload, now)
}

// read takes a packet apart. A packet that is none of the stream has a counter for its fault.
func (s *stream) read(b []byte, now time.Time) (number uint32, payload []byte, fault *uint64) {
	n, err := s.header.Unmarshal(b)
	if err != nil || s.header.Version != 2 {
		return 0, nil, &s.stats.Malformed
	}
	payload = b[n:]
	if s.header.Padding { // its last byte is its length (RFC 3550 §5.1)
		if len(payload) == 0 || payload[len(payload)-1] == 0 || int(payload[len(payload)-1]) > len(payload) {
			return 0, nil, &s.stats.Malformed
		}
		payload = payload[:len(payload)-int(payload[len(payload)-1])]
	}
	if s.header.PayloadType != s.media.PayloadType {
		return 0, nil, &s.stats.Foreign
	}
	if !s.accept(s.header.SSRC, now) {
		s.rival.packet(s.header.SSRC)
		return 0, nil, &s.stats.Foreign
	}
	if number, err = s.depack.sequence(s.header.SequenceNumber, payload); err != nil {
		return 0, nil, &s.stats.Malformed
	}
	return number, payload, nil
}

// malformed counts a datagram that did not fit into its memory.
func (s *stream) malformed() {
	if !s.stopped {
		s.stats.Malformed++
	}
}

// accept says whether the stream is ssrc's. A new sender takes over when the old one has gone silent or said BYE.
func (s *stream) accept(ssrc uint32, now time.Time) bool {
	if s.locked && s.ssrc == ssrc {
		return true
	}
	if s.stopped || s.locked && now.Sub(s.heard) < silence {
		return false
	}
	bits := uint(16)
	if s.media.Payload == rtp.Raw {
		bits = 32
	}
	before, first := s.seq.missing(), !s.locked
	s.rival.settle(s.ssrc, ssrc)
	s.locked, s.ssrc, s.seq = true, ssrc, newSequence(bits)
	s.seq.before, s.seq.midway = before, first
	s.joined, s.closed, s.timed, s.sr = false, false, false, senderReport{}
	for i := range s.open {
		s.open[i].open = false
	}
	return true
}

// time follows the interarrival jitter (RFC 3550 A.8).
func (s *stream) time(now time.Time) {
	transit := rtp.MediaClock(now) - s.header.Timestamp
	d := int32(transit - s.transit)
	if s.transit = transit; !s.timed {
		s.timed = true
		return
	}
	if d < 0 {
		d = -d
	}
	s.jitter += uint32(d) - (s.jitter+8)>>4
}

// place puts a payload into its frame.
func (s *stream) place(number uint32, payload []byte, now time.Time) {
	a := s.find(s.header.Timestamp)
	if a == nil {
		s.stats.Late++
		return
	}
	extended := s.seq.extend(number)
	a.first = min(a.first, extended)
	if s.depack.add(a, extended, payload, s.header.Marker) != nil {
		s.stats.Malformed++
		return
	}
	if s.depack.whole(a) {
		s.complete(a, now)
	}
	if !s.header.Marker {
		return
	}
	for i := range s.open { // the end of one tells where the other begins
		if o := &s.open[i]; o != a && o.open && s.depack.whole(o) {
			s.complete(o, now)
		}
	}
}

// find returns the frame of that timestamp and begins it when it is new; nil when it has been closed already. A frame
// is given up when a later one is complete, or begun, and yet another begins: two are open at most.
func (s *stream) find(ts uint32) *assembly {
	for i := range s.open {
		if a := &s.open[i]; a.open && a.timestamp == ts {
			return a
		}
	}
	if late := int32(s.newest - ts); s.closed && late >= 0 && late < staleFrames {
		return nil
	}
	first, second := &s.open[0], &s.open[1]
	if first.open && second.open && int32(second.timestamp-first.timestamp) < 0 {
		first, second = second, first
	}
	for _, a := range [...]*assembly{first, second} {
		overtaken := s.closed && int32(s.newest-a.timestamp) > 0
		if a.open && (overtaken || a == first && second.open) {
			s.giveUp(a)
		}
	}
	if first.open {
		first = second
	}
	s.depack.begin(first, ts, !s.joined)
	s.joined = true
	return first
}

func (s *stream) close(a *assembly) {
	a.open = false
	if age := int32(s.newest - a.timestamp); !s.closed || age < 0 || age >= staleFrames {
		s.newest = a.timestamp
	}
	s.closed = true
}

func (s *stream) giveUp(a *assembly) {
	s.close(a)
	if !a.joined && !s.seq.cut(a.first) {
		s.stats.Damaged++
	}
}

func (s *stream) complete(a *assembly, now time.Time) {
	s.close(a)
	s.stats.Frames++
	picture, crc, bytes := s.depack.frame(a)
	s.verify.frame(check{timestamp: a.timestamp, crc: crc, bytes: bytes})
	if !s.sr.at.IsZero() {
		ticks := int64(int32(a.timestamp - s.sr.rtp))
		s.latency.Observe(now.Sub(rtp.FromNTP(s.sr.ntp).Add(time.Duration(ticks * 1e5 / 9))))
	}
	if s.onFrame != nil {
		s.onFrame(picture, FrameInfo{Format: s.format, Timestamp: a.timestamp, CRC: crc})
	}
}

// stop makes the highest sequence number that has come the last one that counts. Packets before it may be under way.
func (s *stream) stop() { s.stopped = true }

// awaits says whether a packet before the end is missing that may be under way, or the checksum of one of the last two frames,
// which the sender has promised.
func (s *stream) awaits() bool {
	return s.seq.gaps() || s.media.Checksum && s.verify.awaits(2)
}

// finish closes the books: a frame that a later one has overtaken is damaged, the newest may be under way, if the sender has
// not told that it is damaged.
func (s *stream) finish() {
	for i := range s.open {
		a, other := &s.open[i], &s.open[1-i]
		overtaken := other.open && int32(other.timestamp-a.timestamp) > 0 || s.closed && int32(s.newest-a.timestamp) > 0
		if a.open && (overtaken || s.told && a.timestamp == s.spoilt) {
			s.giveUp(a)
		}
	}
	s.verify.finish()
}

// control takes an RTCP compound.
func (s *stream) control(b []byte, from netip.AddrPort, now time.Time) {
	packets, err := rtcp.Unmarshal(b)
	if err != nil {
		s.stats.Malformed++
		return
	}
	for _, p := range packets {
		switch p := p.(type) {
		case *rtcp.SenderReport:
			if s.locked && p.SSRC == s.ssrc {
				s.sr = senderReport{now, p.NTPTime, p.RTPTime, from}
			}
			s.rival.report(p.SSRC, from)
		case *rtcp.ApplicationDefined:
			if s.locked && p.SSRC == s.ssrc {
				s.application(p)
			}
		case *rtcp.Goodbye:
			for _, ssrc := range p.Sources {
				if s.locked && ssrc == s.ssrc {
					s.stats.Byes++
					s.stats.Ended = true
					s.heard = time.Time{} // the next sender is welcome at once
				}
			}
		}
	}
}

// application takes what the sender tells about a frame.
func (s *stream) application(p *rtcp.ApplicationDefined) {
	if c, err := rtp.ParseChecksum(p.SubType, p.Name, p.Data); err == nil {
		s.verify.checksum(check{timestamp: c.Timestamp, crc: c.CRC, bytes: c.Bytes})
		if c.Unverified {
			s.stats.SourceUnverified++
		}
	}
	if d, err := rtp.ParseDamage(p.SubType, p.Name, p.Data); err == nil {
		if s.stats.SourceDamaged++; d.Packets == 0 { // no packet tells of it
			s.stats.Damaged++
		}
		s.told, s.spoilt = true, d.Timestamp
	}
}

// snapshot reads the counters.
func (s *stream) snapshot() Stats {
	st := s.stats
	st.Lost = s.seq.missing()
	st.OtherSender = s.rival.String()
	st.Jitter = time.Duration(s.jitter>>4) * time.Second / rtp.ClockRate
	st.Matched, st.Mismatched, st.Unverified = s.verify.matched, s.verify.mismatched, s.verify.unverified
	st.Latency = s.latency.Percentiles()
	return st
}
