// SPDX-License-Identifier: Apache-2.0

package v4l2

import "bytes"

// startCode precedes a unit (H.264 Annex B).
var startCode = []byte{0, 0, 0, 1}

const (
	kindMask  = 0x1f
	kindSlice = 1
	kindIDR   = 5
	kindSPS   = 7
	kindPPS   = 8
)

// sets returns copies of the parameter sets in a byte stream, or nil for those that are missing.
func sets(stream []byte) (sps, pps []byte) {
	for unit := range bytes.SplitSeq(stream, startCode[1:]) {
		unit = bytes.TrimRight(unit, "\x00") // zeros belong to the next, longer start code; a parameter set never ends with zeros
		if len(unit) < 4 {
			continue
		}
		switch unit[0] & kindMask {
		case kindSPS:
			sps = bytes.Clone(unit)
		case kindPPS:
			pps = bytes.Clone(unit)
		}
	}
	return sps, pps
}

// hasSets reports whether there is an SPS in the first 256 bytes of a byte stream.
func hasSets(stream []byte) bool {
	sps, _ := sets(stream[:min(len(stream), 256)])
	return sps != nil
}

// setsAlone reports whether a byte stream contains parameter sets but no picture.
func setsAlone(stream []byte) bool {
	alone := false
	for unit := range bytes.SplitSeq(stream, startCode[1:]) {
		if len(unit) == 0 || len(unit) == 1 && unit[0] == 0 {
			continue
		}
		switch unit[0] & kindMask {
		case kindSPS, kindPPS:
			alone = true
		case kindSlice, kindIDR:
			return false
		}
	}
	return alone
}
