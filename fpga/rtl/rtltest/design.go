// SPDX-License-Identifier: Apache-2.0

package rtltest

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ebitengine/purego"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
)

// Properties of the design behind a DMA engine. Verilator can simulate such a slow clock in real time, so the design's
// time is that of the machine.
const (
	ClockNS   = 1000 // period of the design's clock in ns
	MaxWidth  = 1920 // samples
	MaxHeight = 1080 // lines

	beatsLog2 = 18 // logarithm of the beats of a frame of MaxWidth * MaxHeight samples of 16 bits, rounded up
)

// Shift is the number of samples by which the test pattern moves to the left per frame.
const Shift = 2

// ResetExposure is the reset value of EXPOSURE in the simulation.
const ResetExposure = 50 * time.Microsecond

// Design is the simulated camera with its test pattern or a sensor. It implements model.Design. Its methods may be called
// concurrently.
type Design struct {
	mu  sync.Mutex
	lib library
	c   uintptr
}

// library holds the functions of sim/harness.cpp that are used here.
type library struct {
	create    func(seed uint64, pattern uint32, trace string) uintptr
	free      func(c uintptr)
	reset     func(c uintptr)
	write     func(c uintptr, off, v uint32)
	read      func(c uintptr, off uint32) uint32
	run       func(c uintptr, cycles uint32)
	channel   func(c uintptr, run, busy uint32)
	pressure  func(c uintptr, ready, burst, slow uint32)
	interrupt func(c uintptr) uint32
	now       func(c uintptr) uint64
	shot      func(c uintptr, samples *uint16, lines *uint32, count uint32)
	halt      func(c uintptr, halted uint32)
	room      func(c uintptr, beats uint32)
	waiting   func(c uintptr) uint32
	take      func(c uintptr, to *byte, room uint32) uint32
	broken    func(c uintptr, to *byte, room uint32) uint32
}

// Open starts a simulation of the design in dir, the path of fpga/rtl. With pattern, the design sends its test pattern
// (see Sensor), otherwise the lines passed to Shoot. The test is skipped if Verilator is missing, and fails at its end
// if a rule of AXI was broken.
func Open(t testing.TB, dir string, pattern bool) *Design {
	t.Helper()
	if _, err := exec.LookPath("verilator"); err != nil {
		t.Skip("NEEDS verilator, which make setup-test installs")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{
		fmt.Sprintf("-GCLOCK_PS=%d", 1000*ClockNS), fmt.Sprintf("-GMAX_WIDTH=%d", MaxWidth), fmt.Sprintf("-GMAX_HEIGHT=%d", MaxHeight),
		fmt.Sprintf("-GBEATS_LOG2=%d", beatsLog2),
	}
	trace := os.Getenv("TEGRACAST_RTL_TRACE") // a file for waveforms
	if trace != "" {
		args = append(args, "--trace")
	}
	path, err := Build(dir, filepath.Join(cache, "tegracast"), args...)
	if err != nil {
		t.Fatal(err)
	}
	so, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		t.Fatal(err)
	}
	d := &Design{}
	l := &d.lib
	for name, f := range map[string]any{
		"new": &l.create, "free": &l.free, "reset": &l.reset, "write": &l.write, "read": &l.read, "run": &l.run, "channel": &l.channel,
		"pressure": &l.pressure, "interrupt": &l.interrupt, "now": &l.now, "shot": &l.shot, "halt": &l.halt, "room": &l.room,
		"waiting": &l.waiting, "take": &l.take, "broken": &l.broken,
	} {
		purego.RegisterLibFunc(f, so, "tcam_"+name)
	}
	d.c = l.create(1, bit(pattern), trace)
	d.Reset()
	t.Cleanup(func() {
		var b [4096]byte
		if n := l.broken(d.c, &b[0], uint32(len(b))); n > 0 {
			t.Errorf("rules of AXI were broken:\n%s", b[:min(int(n), len(b))])
		}
		l.free(d.c)
	})
	return d
}

func bit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// Sensor returns a sensor of the model that delivers the test pattern.
func Sensor(t testing.TB, width, height int, format fpga.FourCC, period time.Duration) *model.Sensor {
	t.Helper()
	s, err := model.NewSensor(model.SensorConfig{
		Width: width, Height: height, Format: format, Frames: [][]byte{Texture(width, height, format)}, Shift: Shift,
		Period: period, Exposure: ResetExposure,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Texture returns the texture of the test pattern: a frame that is not shifted and does not contain its number.
func Texture(width, height int, f fpga.FourCC) []byte {
	var b []byte
	for y := range height {
		for x := range width {
			v := uint16((x^y)&0xff<<8|(x+3*y)&0xff) >> (16 - f.Bits())
			if f.SampleBytes() == 1 {
				b = append(b, byte(v))
			} else {
				b = binary.LittleEndian.AppendUint16(b, v)
			}
		}
	}
	return b
}

// Read32 implements fpga.Registers. It advances the design's time by some AXI4-Lite cycles.
func (d *Design) Read32(off uint32) uint32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lib.read(d.c, off)
}

// Write32 implements fpga.Registers. It advances the design's time like Read32.
func (d *Design) Write32(off, v uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lib.write(d.c, off, v)
}

// Reset implements model.Design.
func (d *Design) Reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lib.reset(d.c)
	d.lib.room(d.c, 0)
}

// Now implements model.Design.
func (d *Design) Now() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Duration(d.lib.now(d.c))
}

// Run implements model.Design.
func (d *Design) Run(span time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lib.run(d.c, uint32((span+ClockNS-1)/ClockNS))
}

// Channel implements model.Design.
func (d *Design) Channel(run, busy bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lib.channel(d.c, bit(run), bit(busy))
}

// Waiting implements model.Design.
func (d *Design) Waiting() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lib.waiting(d.c) > 0
}

// Read implements model.Design.
func (d *Design) Read(p []byte) (n int, eop bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v := d.lib.take(d.c, &p[0], uint32(len(p)))
	n, eop = int(v&0x7fffffff), v>>31 != 0
	room := len(p) - n
	if eop { // the descriptor ends with the packet
		room = 0
	}
	d.lib.room(d.c, uint32(room/model.BeatBytes))
	return n, eop
}

// Interrupt implements model.Design.
func (d *Design) Interrupt() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lib.interrupt(d.c) != 0
}

// Pressure sets the back pressure: the channel is ready with a probability of ready/256, drawn again after 1 to burst
// cycles, at random.
func (d *Design) Pressure(ready, burst uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lib.pressure(d.c, ready, burst, 0)
}

// Shoot queues these lines as one readout. At the end of each exposure, the sensor begins the first readout in the
// queue.
func (d *Design) Shoot(lines ...[]uint16) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var samples []uint16
	var lengths []uint32
	for _, l := range lines {
		samples, lengths = append(samples, l...), append(lengths, uint32(len(l)))
	}
	d.lib.shot(d.c, &samples[0], &lengths[0], uint32(len(lengths)))
}

// Halt halts the sensor where it is, or lets it continue.
func (d *Design) Halt(halted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lib.halt(d.c, bit(halted))
}
