// SPDX-License-Identifier: Apache-2.0

package rtl

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ebitengine/purego"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/rtl/rtltest"
)

// Properties of the simulated design (sim/tcam_sim.sv).
const (
	clockNS   = 100
	maxWidth  = 128
	maxHeight = 32
)

// traceFile is the file for the waveforms of the latest simulation.
var traceFile = os.Getenv("TEGRACAST_RTL_TRACE")

// library builds the simulated design, with its checks, as a shared library and returns its path.
func library(dir, cache string, more ...string) (string, error) {
	args := append([]string{"--assert"}, more...)
	if traceFile != "" {
		args = append(args, "--trace")
	}
	return rtltest.Build(dir, cache, args...)
}

// design has the library's functions (sim/harness.cpp).
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
	coverage   func(c uintptr, file string)
	mutant     func(number uint32)
	covered    func() string // returns where each simulation's coverage is written
}

func openDesign(dir, cache string, more ...string) (*design, error) {
	path, err := library(dir, cache, more...)
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
		"coverage": &d.coverage, "mutant": &d.mutant,
	} {
		purego.RegisterLibFunc(f, lib, "tcam_"+name)
	}
	return d, nil
}

// theDesign returns the design in this folder. It skips the test without Verilator.
func theDesign(t testing.TB) *design {
	t.Helper()
	if _, err := exec.LookPath("verilator"); err != nil {
		t.Skip("NEEDS verilator, which make setup-test installs")
	}
	d, err := openDesign(".", cacheFolder(t))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func cacheFolder(t testing.TB) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(cache, "tegracast")
}

// simulation is a simulated camera.
type simulation struct {
	*design
	c uintptr
}

// start starts a simulation, at an arbitrary time of its counter.
func (d *design) start(seed uint64, pattern bool) *simulation {
	var p uint32
	if pattern {
		p = 1
	}
	s := &simulation{d, d.create(seed, p, traceFile)}
	s.step(rand.New(rand.NewPCG(seed, 8)).Uint64() >> 2)
	return s
}

func (s *simulation) close() {
	if s.covered != nil {
		s.coverage(s.c, s.covered())
	}
	s.design.free(s.c)
}

func (s *simulation) Read32(off uint32) uint32 { return s.read(s.c, off) }
func (s *simulation) Write32(off, v uint32)    { s.write(s.c, off, v) }
func (s *simulation) cycles(n int)             { s.run(s.c, uint32(n)) }
func (s *simulation) time() uint64             { return s.now(s.c) }

func (s *simulation) read64(low uint32) uint64 {
	v := uint64(s.Read32(low))
	return v | uint64(s.Read32(low+4))<<32
}

// next returns the oldest packet not returned yet, or nil.
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

// rules returns an error if a handshake was wrong.
func (s *simulation) rules() error {
	var b [4096]byte
	if n := s.broken(s.c, &b[0], uint32(len(b))); n > 0 {
		return fmt.Errorf("rules of AXI were broken:\n%s", b[:min(int(n), len(b))])
	}
	return nil
}

func TestLint(t *testing.T) {
	if _, err := exec.LookPath("verilator"); err != nil {
		t.Skip("NEEDS verilator, which make setup-test installs")
	}
	files, err := filepath.Glob("*.sv")
	if err != nil {
		t.Fatal(err)
	}
	for _, top := range []string{"tcam_sim", "tcam_camera"} {
		args := append([]string{"--lint-only", "-Wall", "--top-module", top, "sim/tcam_sim.sv"}, files...)
		if out, err := exec.CommandContext(t.Context(), "verilator", args...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", top, err, out)
		}
	}
}
