// SPDX-License-Identifier: Apache-2.0

package xdma

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/fpga"
)

// Every error bit of PG195's status register has a name, in both directions, and is found by its kind.
func TestStatusErrorNamesEveryBit(t *testing.T) {
	host := "unsupported request|completer abort|parity error|poisoned header (EP)|unexpected completion"
	card := "AXI decode error|AXI slave error|reserved|reserved|reserved"
	none := strings.Repeat("reserved|", 4) + "reserved"
	for _, c := range []struct {
		dir      fpga.Direction
		first    int
		name     string
		kind     error
		meanings string
	}{
		{fpga.H2C, 9, "read_error", ErrRead, host},
		{fpga.H2C, 14, "write_error", ErrWrite, card},
		{fpga.H2C, 19, "descr_error", ErrDescriptor, host},
		{fpga.C2H, 9, "read_error", ErrRead, card},
		{fpga.C2H, 14, "write_error", ErrWrite, none},
		{fpga.C2H, 19, "descr_error", ErrDescriptor, host},
		{fpga.H2C, 3, "align_mismatch", ErrAlign, "source and destination differ in alignment"},
		{fpga.C2H, 4, "magic_stopped", ErrMagic, "a descriptor without the magic number was fetched"},
		{fpga.C2H, 5, "invalid_length", ErrLength, "the length breaks the channel's granularity"},
	} {
		for i, meaning := range strings.Split(c.meanings, "|") {
			bit := c.first + i
			err := fmt.Errorf("outer: %w", &StatusError{Channel: 2, Direction: c.dir, Status: 1<<bit | statusBusy | bitDescCompleted})
			var status *StatusError
			if !errors.As(err, &status) {
				t.Fatal("not a StatusError")
			}
			bits := status.Bits()
			if len(bits) != 1 {
				t.Fatalf("%s bit %d: %v", c.dir, bit, bits)
			}
			name := c.name
			if strings.Contains(c.meanings, "|") {
				name = fmt.Sprintf("%s[%d]", c.name, i)
			}
			want := StatusBit{Register: map[fpga.Direction]uint32{fpga.H2C: 0x240, fpga.C2H: 0x1240}[c.dir], Bit: bit, Name: name, Meaning: meaning, Kind: c.kind}
			if bits[0] != want {
				t.Errorf("%+v, want %+v", bits[0], want)
			}
			for _, kind := range []error{ErrAlign, ErrMagic, ErrLength, ErrRead, ErrWrite, ErrDescriptor, ErrGone} {
				if want := errors.Is(c.kind, kind); errors.Is(err, kind) != want {
					t.Errorf("%s bit %d: errors.Is(%v) = %t", c.dir, bit, kind, !want)
				}
			}
			if s := err.Error(); !strings.Contains(s, name) || !strings.Contains(s, meaning) || !strings.Contains(s, c.dir.String()+" channel 2") {
				t.Errorf("%q", s)
			}
		}
	}
	if all := (&StatusError{Status: bitsFatal}).Bits(); len(all) != 18 {
		t.Errorf("%d error bits in all, want 18", len(all))
	}
}
