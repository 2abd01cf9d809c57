// SPDX-License-Identifier: Apache-2.0

package mp4

import (
	"bytes"
	"slices"
	"testing"
)

// TestUnits checks how byte streams are split: start codes of three and four bytes, zeros behind units, and no limit to
// their number.
func TestUnits(t *testing.T) {
	many := bytes.Repeat([]byte("\x00\x00\x01a"), 3000)
	for in, want := range map[string][]string{
		"": nil, "abc": nil, "\x00\x00\x01": nil, "\x00\x00\x01a": {"a"}, "\x00\x00\x00\x01a\x00\x00\x01b\x00\x00\x00\x01c": {"a", "b", "c"},
		"\x00\x00\x01a\x00\x00\x00\x00\x00\x01b\x00\x00\x00": {"a", "b"}, "\x00\x00\x01\x00\x00\x01b": {"b"},
		"\x00\x00\x01a\x00\x00\x03\x01": {"a\x00\x00\x03\x01"}, string(many): slices.Repeat([]string{"a"}, 3000),
	} {
		var got []string
		for u := range units([]byte(in)) {
			got = append(got, string(u))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%.40q: %.40q, want %.40q", in, got, want)
		}
	}
}

// TestByteStream checks the way back from lengths to start codes, and lengths that are too large.
func TestByteStream(t *testing.T) {
	b := []byte("\x00\x00\x00\x02ab\x00\x00\x00\x01c")
	if err := byteStream(b); err != nil || string(b) != "\x00\x00\x00\x01ab\x00\x00\x00\x01c" {
		t.Errorf("%q: %v", b, err)
	}
	for _, bad := range []string{"\x00\x00\x01", "\x00\x00\x00\x02a", "\xff\xff\xff\xffa"} {
		if err := byteStream([]byte(bad)); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}
