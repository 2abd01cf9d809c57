// SPDX-License-Identifier: Apache-2.0

package model

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/fpga"
)

// document returns the table rows of docs/fpga-interface.md.
func document(t *testing.T) [][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/fpga-interface.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "|") {
			cells := strings.Split(strings.Trim(line, "|"), "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			rows = append(rows, cells)
		}
	}
	return rows
}

// The model must match the document's register table: reset values, and read-only registers that do not change.
func TestDocumentedRegisters(t *testing.T) {
	s, err := NewSensor(TestChartSensor())
	if err != nil {
		t.Fatal(err)
	}
	h := newHost(t, func(b Bus) Config {
		cfg := Camera(b, s)
		cfg.Clock = virtual()
		return cfg
	})
	regs := h.d.BARs()[0].Registers
	n := 0
	for _, row := range document(t) {
		if !regexp.MustCompile(`^0x[0-9a-f]{3}$`).MatchString(row[0]) {
			continue
		}
		n++
		off, err := strconv.ParseUint(row[0], 0, 32)
		if err != nil {
			t.Fatal(err)
		}
		name, access, reset := row[1], row[2], row[3]
		got := regs.Read32(uint32(off))
		if want, err := strconv.ParseUint(reset, 0, 32); err == nil && got != uint32(want) {
			t.Errorf("%s resets to %#x, the document says %#x", name, got, want)
		}
		if access == "RO" || access == "WO" {
			regs.Write32(uint32(off), ^got&^uint32(3))
			if again := regs.Read32(uint32(off)); again != got {
				t.Errorf("%s is %s and went from %#x to %#x", name, access, got, again)
			}
		}
	}
	if n != 41 {
		t.Errorf("%d registers in the document", n)
	}
}

func TestDocumentedFormats(t *testing.T) {
	bits := []int{8, 10, 12, 14, 16}
	n := 0
	for _, row := range document(t) {
		if len(row) != 6 || !strings.HasPrefix(row[1], "`") {
			continue
		}
		for i, cell := range row[1:] {
			n++
			f := fpga.NewFourCC([4]byte([]byte(strings.Trim(cell, "`"))))
			if f.Bits() != bits[i] {
				t.Errorf("%v has %d bits, the document says %d", f, f.Bits(), bits[i])
			}
		}
	}
	if n != 25 {
		t.Errorf("%d formats in the document", n)
	}
}
