// SPDX-License-Identifier: Apache-2.0

package rtl

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ebitengine/purego"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/rtl/rtltest"
)

// Of the design that is simulated (sim/tcam_sim.sv).
const (
	clockNS   = 100
	maxWidth  = 128
	maxHeight = 32
)

// design is the library's functions (sim/harness.cpp).
type design struct {
	create     func(seed uint64, pattern uint32, trace string) uintptr
	free       func(c uintptr)
	write      func(c uintptr, off, v uint32)
	read       func(c uintptr, off uint32) uint32
	run        func(c uintptr, cycles uint32)
	channel    func(c uintptr, run, busy uint32)
	pressure   func(c uintptr, ready, burst, slow uint32)
	trigger    func(c uintptr, level uint32)
	interrupt  func(c uintptr) uint32
	now        func(c uintptr) uint64
	shot       func(c uintptr, samples *uint16, lines *uint32, count uint32)
	halt       func(c uintptr, halted uint32)
	sensorBusy func(c uintptr) uint32
	firstLine  func(c uintptr) uint64
	lastLine   func(c uintptr) uint64
	packet     func(c uintptr, to *byte, room uint32) uint32
	broken     func(c uintptr, to *byte, room uint32) uint32
}

func openDesign(dir, cache string) (*design, error) {
	path, err := rtltest.Build(dir, cache)
	if err != nil {
		return nil, err
	}
	lib, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, err
	}
	d := &design{}
	for name, f := range map[string]any{
		"new": &d.create, "free": &d.free, "write": &d.write, "read": &d.read, "run": &d.run, "channel": &d.channel,
		"pressure": &d.pressure, "trigger": &d.trigger, "interrupt": &d.interrupt, "now": &d.now, "shot": &d.shot, "halt": &d.halt,
		"sensor_busy": &d.sensorBusy, "first_line": &d.firstLine, "last_line": &d.lastLine, "packet": &d.packet, "broken": &d.broken,
	} {
		purego.RegisterLibFunc(f, lib, "tcam_"+name)
	}
	return d, nil
}

// theDesign is that of this folder. A machine without Verilator has none.
func theDesign(t testing.TB) *design {
	t.Helper()
	d, err := openDesign(".", rtltest.Need(t))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// simulation is a camera that is simulated.
type simulation struct {
	*design
	c uintptr
}

func (d *design) start(seed uint64, pattern bool) *simulation {
	var p uint32
	if pattern {
		p = 1
	}
	return &simulation{d, d.create(seed, p, rtltest.TraceFile())}
}

func (s *simulation) close() { s.design.free(s.c) }

func (s *simulation) Read32(off uint32) uint32 { return s.read(s.c, off) }
func (s *simulation) Write32(off, v uint32)    { s.write(s.c, off, v) }
func (s *simulation) cycles(n int)             { s.run(s.c, uint32(n)) }
func (s *simulation) time() uint64             { return s.now(s.c) }

func (s *simulation) read64(low uint32) uint64 {
	v := uint64(s.Read32(low))
	return v | uint64(s.Read32(low+4))<<32
}

// next is the oldest packet that has not been looked at, or nil.
func (s *simulation) next() []byte {
	var b [maxWidth*maxHeight*2 + 2*fpga.TrailerSize]byte
	n := s.packet(s.c, &b[0], uint32(len(b)))
	if n == 0 {
		return nil
	}
	if int(n) > len(b) {
		return append(b[:], make([]byte, int(n)-len(b))...) // longer than any frame
	}
	return slices.Clone(b[:n])
}

// rules returns an error when a handshake was wrong.
func (s *simulation) rules() error {
	var b [4096]byte
	if n := s.broken(s.c, &b[0], uint32(len(b))); n > 0 {
		return fmt.Errorf("rules of AXI were broken:\n%s", b[:min(int(n), len(b))])
	}
	return nil
}

func TestLint(t *testing.T) {
	rtltest.Need(t)
	for _, top := range []string{"tcam_sim", "tcam_camera"} {
		if err := rtltest.Verilator(".", "--lint-only", "-Wall", "--top-module", top); err != nil {
			t.Error(err)
		}
	}
}
