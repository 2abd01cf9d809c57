// SPDX-License-Identifier: Apache-2.0

package model

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tegracast/tegracast/fpga"
)

// slowDesign is a design whose simulation runs at a tenth of real time.
type slowDesign struct {
	now    time.Duration
	resets atomic.Int32
}

func (*slowDesign) Write32(uint32, uint32)  {}
func (*slowDesign) Channel(bool, bool)      {}
func (*slowDesign) Read([]byte) (int, bool) { return 0, false }
func (*slowDesign) Waiting() bool           { return false }
func (*slowDesign) Interrupt() bool         { return false }
func (d *slowDesign) Now() time.Duration    { return d.now }

func (d *slowDesign) Reset() {
	d.now = 0
	d.resets.Add(1)
}

func (d *slowDesign) Run(span time.Duration) {
	time.Sleep(10 * span)
	d.now += span
}

func (d *slowDesign) Read32(off uint32) uint32 {
	if off == fpga.CamMagic {
		return fpga.CameraMagic
	}
	return uint32(d.now)
}

// A design that the machine cannot simulate in time gets a slow clock: its registers respond, and it does not catch up
// afterwards.
func TestDesignOfASlowMachine(t *testing.T) {
	design := &slowDesign{}
	h := newHost(t, func(b Bus) Config {
		return Config{Bus: b, H2C: []Interface{Stream}, C2H: []Interface{Stream}, Designs: []Design{design}}
	}).startDevice()
	user := h.d.BARs()[0].Registers
	began := time.Now()
	h.eventually("a slower clock", func() bool {
		if v := user.Read32(fpga.CamMagic); v != fpga.CameraMagic {
			t.Errorf("MAGIC reads %#x", v)
		}
		h.d.mu.Lock()
		defer h.d.mu.Unlock()
		passed := time.Since(began)
		late := time.Since(h.d.designs[0].began) - design.Now()
		return passed > 4*designLate && design.Now() < passed/2 && late < passed/2
	})
	h.d.Reset()
	if n := design.resets.Load(); n != 2 { // the first one is the device's
		t.Errorf("%d resets", n)
	}
}

func TestDesignNeedsAChannel(t *testing.T) {
	_, err := New(Config{Bus: &flatBus{}, H2C: []Interface{Stream}, C2H: []Interface{Stream}, Designs: []Design{&slowDesign{}, &slowDesign{}}})
	if err == nil || !strings.Contains(err.Error(), "2 sensors need as many C2H stream channels, C2H has 1") {
		t.Error(err)
	}
}
