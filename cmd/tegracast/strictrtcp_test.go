// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

const since1900 = 2208988800 // seconds to 1970

// compound checks a compound packet (RFC 3550 §6.1).
func (s *strict) compound(p []byte) error {
	if err := s.parts(p); err != nil {
		return fmt.Errorf("report %d, % x: %w", s.reports, p, err)
	}
	return nil
}

func (s *strict) parts(p []byte) error {
	const sr, sdes, bye, app = 200, 202, 203, 204
	for i := 0; len(p) > 0; i++ {
		if len(p) < 8 || p[0]>>6 != 2 {
			return errors.New("no header of version 2")
		}
		n := 4 * (int(binary.BigEndian.Uint16(p[2:])) + 1)
		kind := p[1]
		switch {
		case n > len(p) || n < 8:
			return fmt.Errorf("a length of %d bytes, there are %d", n, len(p))
		case i == 0 && kind != sr || i == 1 && kind != sdes:
			return fmt.Errorf("packet %d of a compound is of type %d", i, kind)
		case p[0]>>5&1 == 1:
			return errors.New("there is padding")
		case s.packets > 0 && binary.BigEndian.Uint32(p[4:]) != s.ssrc:
			return fmt.Errorf("want the SSRC %#x", s.ssrc)
		}
		err := error(nil)
		switch kind {
		case sr:
			err = s.senderReport(p[:n])
		case sdes:
			err = s.description(p[8:n])
		case bye:
			s.bye = true
		case app:
		default:
			err = fmt.Errorf("type %d", kind)
		}
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// senderReport checks §6.4.1: the counts must be those at some moment of what has arrived, and both times must be of one
// instant.
func (s *strict) senderReport(p []byte) error {
	if p[0]&0x1f != 0 || len(p) != 28 {
		return errors.New("a sender that receives nothing reports about somebody")
	}
	ntp, stamp := binary.BigEndian.Uint64(p[8:]), binary.BigEndian.Uint32(p[16:])
	packets, octets := binary.BigEndian.Uint32(p[20:]), binary.BigEndian.Uint32(p[24:])
	seconds, fraction := ntp>>32, ntp&0xffffffff
	now := time.Unix(int64(seconds)-since1900, int64(fraction*1e9>>32))
	offset := stamp - uint32(seconds*90000+fraction*90000>>32)
	if s.reports++; s.reports == 1 {
		s.offset = offset
	}
	off := int32(offset - s.offset)
	switch age := time.Since(now); {
	case age < 0 || age > 5*time.Second: // it may have waited in the socket
		return fmt.Errorf("it was sent %v ago", age)
	case max(off, -off) > 1:
		return fmt.Errorf("its times are %d ticks apart from those of the first report", off)
	case packets < s.told.packets || packets > s.told.packets+1<<16:
		return fmt.Errorf("it counts %d packets, the one before %d", packets, s.told.packets)
	}
	s.told = sent{packets, octets}
	s.due = append(s.due, s.told)
	return s.count()
}

// sent has the counts of a sender report.
type sent struct{ packets, octets uint32 }

// count checks the reports whose packets have all arrived against their number.
func (s *strict) count() error {
	for ; len(s.due) > 0 && s.due[0].packets <= s.packets; s.due = s.due[1:] {
		if d := s.due[0]; d.octets != s.octets[d.packets] {
			return fmt.Errorf("%d packets had %d octets, a report says %d", d.packets, s.octets[d.packets], d.octets)
		}
	}
	return nil
}

// age returns the age of the last frame by its timestamp and the sender reports.
func (s *strict) age() time.Duration {
	now := time.Now()
	ticks := uint32(uint64(now.Unix()+since1900)*90000+uint64(now.Nanosecond())*90000/1e9) + s.offset
	return time.Duration(int32(ticks-s.stamp)) * time.Second / 90000
}

// description checks §6.5: one source, with a constant CNAME.
func (s *strict) description(p []byte) error {
	if len(p) < 3 || p[0] != 1 || len(p) < 2+int(p[1]) || p[1] == 0 {
		return errors.New("a source description that does not begin with a CNAME")
	}
	name := string(p[2 : 2+p[1]])
	if s.cname == "" {
		s.cname = name
	}
	if name != s.cname {
		return fmt.Errorf("the CNAME was %q", s.cname)
	}
	return nil
}
