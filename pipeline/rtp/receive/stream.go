// SPDX-License-Identifier: Apache-2.0

package receive

import (
	"errors"
	"net/netip"
	"time"

	"github.com/pion/rtcp"
	pionrtp "github.com/pion/rtp"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
)

// A stream is the state of one received stream (RFC 3550 §6.4, A.1, A.3, A.8). It does not use sockets; packets are
// passed to it.
type stream struct {
	media   rtp.Media
	depack  depacketizer
	onFrame func([]byte, FrameInfo)
	format  pipeline.Format

	stopped bool // only packets before the highest number still count
	locked  bool // the stream has the SSRC ssrc
	ssrc    uint32
	heard   time.Time // time of the last packet from ssrc
	header  pionrtp.Header
	seq     sequence
	joined  bool // the first frame has begun
	open    [2]assembly
	closed  bool   // a frame has been closed
	newest  uint32 // highest timestamp of the closed frames; for H.264, that of the frame closed last
	passed  uint64 // highest extended sequence number of the closed frames
	told    bool   // the sender has reported a damaged frame
	spoilt  uint32 // timestamp of the last such frame
	jitter  uint32 // in 1/16 of a clock tick (RFC 3550 A.8)
	jitters uint64 // sum of the values of jitter, one after each packet that was timed
	timings uint64 // number of those packets
	transit uint32
	timed   bool
	sr      senderReport
	rival   rival
	rr      reporter
	verify  verifier
	latency pipeline.Histogram
	stats   Stats
}

// senderReport is the latest sender report of the stream. from is invalid if it came to the RTP port (Media.Mux).
type senderReport struct {
	at   time.Time // time of arrival; zero if there was none
	ntp  uint64
	rtp  uint32
	from netip.AddrPort
}

// silence is the time for which an SSRC must be silent before another one can take its place, unless it has sent BYE.
const silence = 500 * time.Millisecond

// staleFrames is the maximum age of a late timestamp, in ticks of the RTP clock. If a timestamp is older, the sender's
// clock has jumped.
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

// maxReserve is the size in bytes of the largest frame for which memory is allocated in advance.
const maxReserve = 256 << 20

// frameBytes returns the size of a raw frame in bytes without padding, or 0 for other payloads.
func (s *stream) frameBytes() int {
	if s.media.Payload != rtp.Raw {
		return 0
	}
	return s.format.Pixel.LineBytes(s.format.Width) * s.format.Height
}

// touch makes the kernel allocate pages for b, which must contain zeros. The kernel does so at the first write, which
// would delay reception if it happened later.
func touch(b []byte) {
	for i := 0; i < len(b); i += 4096 {
		b[i] = 0
	}
}

// packet processes an RTP packet that arrived at now.
func (s *stream) packet(b []byte, now time.Time) {
	if len(b) > 1 && b[1] >= 192 && b[1] <= 223 { // RTCP (RFC 5761 §4): a report, or a sender that probes the path to this port
		if s.media.Mux {
			s.control(b, netip.AddrPort{}, now)
		}
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

// read parses a packet. If the packet is malformed or does not belong to the stream, fault is the counter for the
// reason; otherwise fault is nil.
func (s *stream) read(b []byte, now time.Time) (number uint32, payload []byte, fault *uint64) {
	n, err := s.header.Unmarshal(b)
	if err != nil || s.header.Version != 2 {
		return 0, nil, &s.stats.Malformed
	}
	payload = b[n:]
	if s.header.Padding { // the last byte of the padding is its length (RFC 3550 §5.1)
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

// accept reports whether ssrc is the stream's SSRC. A new sender takes over, and frames and sequence numbers begin
// anew, when the old one was silent for a while or has sent BYE.
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

// time updates the interarrival jitter (RFC 3550 A.8).
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
	s.jitters += uint64(s.jitter)
	s.timings++
}

// place adds a payload to its frame.
func (s *stream) place(number uint32, payload []byte, now time.Time) {
	extended := s.seq.extend(number)
	a := s.find(s.header.Timestamp, extended)
	if a == nil {
		s.stats.Late++
		return
	}
	a.first, a.last = min(a.first, extended), max(a.last, extended)
	if err := s.depack.addPayload(a, extended, payload, s.header.Marker); err != nil {
		s.stats.Malformed++
		s.stats.Interlaced = s.stats.Interlaced || errors.Is(err, errInterlaced)
		return
	}
	if s.depack.complete(a) {
		s.complete(a, now)
	}
	if !s.header.Marker {
		return
	}
	for i := range s.open { // the end of one frame determines where the other begins
		if o := &s.open[i]; o != a && o.open && s.depack.complete(o) {
			s.complete(o, now)
		}
	}
}

// inDecodingOrder reports whether frames may come in another order than that of their timestamps: H.264 with B pictures
// is sent in decoding order (RFC 6184 §5.1), so only sequence numbers tell which frame is older.
func (s *stream) inDecodingOrder() bool { return s.media.Payload == rtp.H264 }

// jumped reports whether the sequence numbers have jumped back since frame a began.
func (s *stream) jumped(a *assembly) bool { return a.first > s.seq.max }

// older reports whether frame a is older than frame b.
func (s *stream) older(a, b *assembly) bool {
	if s.inDecodingOrder() {
		if x, y := s.jumped(a), s.jumped(b); x != y {
			return x
		}
		return a.first < b.first
	}
	return int32(b.timestamp-a.timestamp) > 0
}

// overtaken reports whether a frame that is newer than a has been closed.
func (s *stream) overtaken(a *assembly) bool {
	if s.inDecodingOrder() {
		return s.jumped(a) || s.closed && s.passed > a.first && s.passed <= s.seq.max
	}
	return s.closed && int32(s.newest-a.timestamp) > 0
}

// tooLate reports whether the frame of a packet has been closed, or a newer one.
func (s *stream) tooLate(ts uint32, number uint64) bool {
	if s.inDecodingOrder() {
		return s.closed && (ts == s.newest || number <= s.passed && s.passed <= s.seq.max)
	}
	late := int32(s.newest - ts)
	return s.closed && late >= 0 && late < staleFrames
}

// find returns the open frame with that timestamp, and begins it if it is new. It returns nil if the frame, or a newer
// one, has been closed. At most two frames are open: before find begins another, it gives up each open frame that is
// older than a closed one, and the older of two open frames.
func (s *stream) find(ts uint32, number uint64) *assembly {
	for i := range s.open {
		if a := &s.open[i]; a.open && a.timestamp == ts {
			return a
		}
	}
	if s.tooLate(ts, number) {
		return nil
	}
	first, second := &s.open[0], &s.open[1]
	if first.open && second.open && s.older(second, first) {
		first, second = second, first
	}
	for _, a := range [...]*assembly{first, second} {
		if a.open && (s.overtaken(a) || a == first && second.open) {
			s.giveUp(a)
		}
	}
	if first.open {
		first = second
	}
	s.depack.beginFrame(first, ts, !s.joined)
	s.joined = true
	return first
}

func (s *stream) close(a *assembly) {
	a.open = false
	if age := int32(s.newest - a.timestamp); !s.closed || age < 0 || age >= staleFrames || s.inDecodingOrder() {
		s.newest = a.timestamp
	}
	if !s.closed || a.last > s.passed && a.last <= s.seq.max || s.passed > s.seq.max {
		s.passed = a.last
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
	if s.media.Payload == rtp.Results {
		s.count(picture)
	}
	if !s.sr.at.IsZero() {
		ticks := int64(int32(a.timestamp - s.sr.rtp))
		s.latency.Observe(now.Sub(rtp.FromNTP(s.sr.ntp).Add(time.Duration(ticks * 1e5 / 9))))
	}
	if s.onFrame != nil {
		s.onFrame(picture, FrameInfo{Format: s.format, Timestamp: a.timestamp, CRC: crc})
	}
}

// stop makes the highest sequence number received the last one that counts. Packets before it may still arrive.
func (s *stream) stop() { s.stopped = true }

// awaits reports whether a missing packet from before the end may still arrive or, if the sender has promised
// checksums, the checksum of one of the last two frames is missing.
func (s *stream) awaits() bool {
	return s.seq.gaps() || s.media.Checksum && s.verify.awaits(2)
}

// finish completes the counts: a frame that a later one has overtaken is damaged. The newest frame may just be
// incomplete, unless the sender has reported that it is damaged.
func (s *stream) finish() {
	for i := range s.open {
		a, other := &s.open[i], &s.open[1-i]
		overtaken := other.open && s.older(a, other) || s.overtaken(a)
		if a.open && (overtaken || s.told && a.timestamp == s.spoilt) {
			s.giveUp(a)
		}
	}
	s.verify.finish()
}

// control processes an RTCP compound.
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
					s.heard = time.Time{} // lets the next sender take over at once
				}
			}
		}
	}
}

// application processes a sender's APP packet: the checksum of a frame, its group, or the report of a damaged one.
func (s *stream) application(p *rtcp.ApplicationDefined) {
	if c, err := rtp.ParseChecksum(p.SubType, p.Name, p.Data); err == nil {
		s.verify.checksum(check{timestamp: c.Timestamp, crc: c.CRC, bytes: c.Bytes})
		if c.Unverified {
			s.stats.SourceUnverified++
		}
	}
	if g, err := rtp.ParseGroup(p.SubType, p.Name, p.Data); err == nil {
		s.stats.Grouped, s.stats.Group = s.stats.Grouped+1, g.Number
	}
	if d, err := rtp.ParseDamage(p.SubType, p.Name, p.Data); err == nil {
		if s.stats.SourceDamaged++; d.Packets == 0 { // no other packet reveals this frame
			s.stats.Damaged++
		}
		s.told, s.spoilt = true, d.Timestamp
	}
}

// snapshot returns the counters.
func (s *stream) snapshot() Stats {
	st := s.stats
	st.Lost = s.seq.missing()
	st.OtherSender = s.rival.String()
	st.Jitter = time.Duration(s.jitters/max(s.timings, 1)) * time.Second / (16 * rtp.ClockRate)
	st.Matched, st.Mismatched, st.Unverified = s.verify.matched, s.verify.mismatched, s.verify.unverified
	st.Latency = s.latency.Percentiles()
	return st
}
