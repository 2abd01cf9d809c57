// SPDX-License-Identifier: Apache-2.0

package xdma

import (
	"testing"
	"time"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
)

// pair is an H2C stream channel whose packets return on a C2H one, with rings of slots of 6144 bytes.
type pair struct {
	bus    *bus
	device *Device
	tap    *tap
	in     *Ring
	inMem  []fpga.Memory
	t      testing.TB
}

func newPair(t testing.TB, options ...func(*Config)) *pair {
	t.Helper()
	p := &pair{bus: newBus(), t: t}
	p.device, _, p.tap = startModel(t, model.Config{Bus: p.bus, H2C: []model.Interface{model.Stream}, C2H: []model.Interface{model.Stream}}, options...)
	for range 3 {
		p.inMem = append(p.inMem, p.bus.memory(6144, 1920))
	}
	var err error
	if p.in, err = p.device.NewRing(RingConfig{Slots: p.inMem, Trailer: 128}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.in.Stop(); err != nil {
			t.Error(err)
		}
		if err := p.in.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// raw sends one packet of n bytes without a ring.
func (p *pair) raw(n int) {
	p.t.Helper()
	mem := p.bus.memory(n, n)
	c := p.device.h2c[0]
	m, err := c.allocate("a packet", descriptorSize)
	if err != nil {
		p.t.Fatal(err)
	}
	chain := writeChain(m.Bytes, m.Segments[0].Addr, []part{{src: mem.Segments[0].Addr, n: n, control: descStop | descCompleted | descEOP}})
	if err := c.ready(); err != nil {
		p.t.Fatal(err)
	}
	if err := c.start(chain.at(0), 0, 0); err != nil {
		p.t.Fatal(err)
	}
	for c.read(regCompleted) == 0 {
		time.Sleep(time.Millisecond)
	}
}
