// SPDX-License-Identifier: Apache-2.0

package rtp

import (
	"bytes"
	"testing"
)

// TestTablesOfOthers checks quantization tables as other senders write them (RFC 2435 §3.1.8): one for luma and chroma
// (ffmpeg), two, and three; tables of 16 bits, and lengths that are wrong, are refused.
func TestTablesOfOthers(t *testing.T) {
	table := func(v byte) []byte { return bytes.Repeat([]byte{v}, 64) }
	for name, tt := range map[string]struct {
		precision    byte
		length       int
		luma, chroma byte // 0: refused
	}{
		"one": {0, 64, 1, 1}, "two": {0, 128, 1, 2}, "three": {0, 192, 1, 2},
		"none": {0, 0, 0, 0}, "half": {0, 32, 0, 0}, "longer than the payload": {0, 640, 0, 0},
		"16 bits": {1, 128, 0, 0}, "chroma of 16 bits": {2, 192, 0, 0},
	} {
		payload := []byte{0, 0, 0, 0, jpeg420, 255, 2, 2, 0, tt.precision, byte(tt.length >> 8), byte(tt.length)}
		tables := append(append(table(1), table(2)...), table(3)...)
		payload = append(append(payload, tables[:min(tt.length, len(tables))]...), 0xaa)
		f, ok := ParseJPEG(payload)
		if ok != (tt.luma != 0) {
			t.Errorf("%s: accepted %t", name, ok)
		} else if ok && (!bytes.Equal(f.Tables[0], table(tt.luma)) || !bytes.Equal(f.Tables[1], table(tt.chroma)) || !bytes.Equal(f.Scan, []byte{0xaa})) {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
