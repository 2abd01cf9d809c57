// SPDX-License-Identifier: Apache-2.0

package mp4

import (
	"bytes"
	"errors"
	"iter"
)

// Types of NAL units.
const (
	unitSPS       = 7
	unitPPS       = 8
	unitDelimiter = 9
)

var startCode = []byte{0, 0, 1}

// units returns the NAL units of a byte stream, of any number and size, without copying. None is empty.
func units(b []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		_, b, _ := bytes.Cut(b, startCode)
		for len(b) > 0 {
			unit, rest, _ := bytes.Cut(b, startCode)
			unit = bytes.TrimRight(unit, "\x00") // of a start code of four bytes, or trailing; units end with a bit that is set
			if len(unit) > 0 && !yield(unit) {
				return
			}
			b = rest
		}
	}
}

// byteStream changes NAL units with lengths of four bytes into a byte stream in place.
func byteStream(b []byte) error {
	for len(b) > 0 {
		if len(b) < 4 || int64(be.Uint32(b)) > int64(len(b)-4) {
			return errors.New("its NAL units are longer than the picture")
		}
		n := be.Uint32(b)
		be.PutUint32(b, 1)
		b = b[4+n:]
	}
	return nil
}

// ParameterSets returns the first SPS and the first PPS in an access unit, or nil if one is missing.
func ParameterSets(stream []byte) (sps, pps []byte) {
	for unit := range units(stream) {
		switch t := unit[0] & 0x1f; {
		case t == unitSPS && sps == nil:
			sps = unit
		case t == unitPPS && pps == nil:
			pps = unit
		}
		if sps != nil && pps != nil {
			return sps, pps
		}
	}
	return nil, nil
}
