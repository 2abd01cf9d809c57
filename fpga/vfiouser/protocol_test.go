// SPDX-License-Identifier: Apache-2.0

package vfiouser

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	vt "github.com/tegracast/tegracast/fpga/vfiouser/vfiousertest"
)

const (
	no  = uint32(0)
	bar = uint32(0)
	cfg = uint32(7)
)

func TestVersion(t *testing.T) {
	d := serve(t)
	r := vt.Dial(t, d.Path()).Greet()
	if r.Flags != 1 || len(r.Body) < 6 || word(r.Body) != 0 || r.Body[len(r.Body)-1] != 0 {
		t.Fatalf("%+v", r)
	}
	var got struct{ Capabilities map[string]any }
	if err := json.Unmarshal(r.Body[4:len(r.Body)-1], &got); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{
		"max_msg_fds": 16.0, "max_data_xfer_size": 1048576.0, "max_dma_maps": 65535.0, "pgsizes": 4096.0, "write_multiple": false,
	} {
		if got.Capabilities[name] != want {
			t.Errorf("%s is %v, want %v", name, got.Capabilities[name], want)
		}
	}
	if len(got.Capabilities) != 5 {
		t.Errorf("capabilities that nobody has proposed: %v", got.Capabilities)
	}
}

// TestGreetings checks that a message other than the version ends the connection, and that the next client is served.
func TestGreetings(t *testing.T) {
	for name, x := range map[string]struct {
		b   []byte
		why string
	}{
		"major 1":       {vt.Frame(1, vt.Version, 0, vt.Cat(uint16(1), uint16(0))), "it began with command"},
		"short":         {vt.Frame(1, vt.Version, 0, vt.Cat(uint16(0))), "it began with command"},
		"no NUL":        {vt.Frame(1, vt.Version, 0, vt.Cat(no, `{}`)), "it began with command"},
		"two NULs":      {vt.Frame(1, vt.Version, 0, vt.Cat(no, "{}\x00\x00")), "it began with command"},
		"no JSON":       {vt.Frame(1, vt.Version, 0, vt.Cat(no, "{\x00")), "it began with command"},
		"another type":  {vt.Frame(1, vt.Version, 0, vt.Cat(no, `{"capabilities":7}`+"\x00")), "it began with command"},
		"no version":    {vt.Frame(1, vt.Reset, 0, nil), "it began with command"},
		"no reply":      {vt.Frame(1, vt.Version, 1<<4, vt.Cat(no)), "it began with command"},
		"a reply":       {vt.Frame(1, vt.Version, 1, vt.Cat(no)), "began with command 1"},
		"type 7":        {vt.Frame(1, vt.Version, 7, vt.Cat(no)), "of type 7"},
		"size 15":       {vt.Cat(uint16(1), uint16(1), uint32(15), no, no), "want 16 to"},
		"too big":       {vt.Cat(uint16(1), uint16(1), uint32(16+16+1<<20+1), no, no), "want 16 to"},
		"half a header": {vt.Cat(uint16(1), uint16(1), uint32(16)), "EOF"},
		"half a body":   {vt.Cat(uint16(1), uint16(1), uint32(20), no, no, uint16(0)), "the body of command 1"},
	} {
		d := serve(t)
		c := vt.Dial(t, d.Path())
		if err := c.Send(x.b); err != nil {
			t.Fatal(name, err)
		}
		c.Hang()
		c.Ended()
		eventually(t, name, func() bool { return strings.Contains(d.Books().LastError, x.why) })
		d.connect(t).Close()
		eventually(t, name, func() bool { return d.Books().LastError == "" })
	}
	d := serve(t)
	for _, body := range [][]byte{vt.Cat(no), vt.Cat(no, "{}\x00"), vt.Cat(uint16(0), uint16(9), `{"capabilities":{"twin_socket":{"supported":true}}}`+"\x00")} {
		c := vt.Dial(t, d.Path())
		if r := c.Do(vt.Version, body); r.Flags != 1 || word(r.Body) != 0 {
			t.Errorf("%q: %+v", body, r)
		}
		c.Close()
	}
}

func TestInfo(t *testing.T) {
	c := serve(t).connect(t)
	works(t, "info", c.Do(vt.Info, vt.Cat(uint32(16), no, no, no)), vt.Cat(uint32(16), uint32(3), uint32(9), uint32(5)))
	for index, want := range [][2]uint64{{64 << 10, 3}, {}, {8 << 30, 3}, {}, {}, {}, {}, {4096, 3}, {}} {
		works(t, "region", c.Do(vt.RegionInfo, vt.Cat(uint32(32), no, uint32(index), no, uint64(0), uint64(0))),
			vt.Cat(uint32(32), uint32(want[1]), uint32(index), no, want[0], uint64(0)))
	}
	for index, want := range [][2]uint32{{7, 1}, {1, 8}, {1, 70}, {1, 1}, {0, 0}} {
		works(t, "irq", c.Do(vt.IRQInfo, vt.Cat(uint32(16), no, uint32(index), no)), vt.Cat(uint32(16), want[0], uint32(index), want[1]))
	}
	fd := memfd(t, "x", 4096)
	for name, r := range map[string]vt.Reply{
		"short":             c.Do(vt.Info, vt.Cat(uint32(16), no, no)),
		"long":              c.Do(vt.Info, vt.Cat(uint32(16), no, no, no, no)),
		"argsz":             c.Do(vt.Info, vt.Cat(uint32(15), no, no, no)),
		"region 9":          c.Do(vt.RegionInfo, vt.Cat(uint32(32), no, uint32(9), no, uint64(0), uint64(0))),
		"region argsz":      c.Do(vt.RegionInfo, vt.Cat(uint32(31), no, no, no, uint64(0), uint64(0))),
		"region short":      c.Do(vt.RegionInfo, vt.Cat(uint32(32), no, no, no, uint64(0))),
		"irq 5":             c.Do(vt.IRQInfo, vt.Cat(uint32(16), no, uint32(5), no)),
		"irq argsz":         c.Do(vt.IRQInfo, vt.Cat(uint32(0), no, no, no)),
		"irq empty":         c.Do(vt.IRQInfo, nil),
		"a descriptor":      c.Do(vt.Info, vt.Cat(uint32(16), no, no, no), fd),
		"a second version":  c.Greet(),
		"reset with a body": c.Do(vt.Reset, vt.Cat(no)),
	} {
		fails(t, name, r, unix.EINVAL)
	}
	for _, cmd := range []uint16{0, 6, 11, 12, 14, 15, 16, 17, 18, 99, 65535} {
		fails(t, "unknown command", c.Do(cmd, nil), unix.ENOTSUP)
	}
	fails(t, "flags", c.Flagged(vt.Info, 1<<6, vt.Cat(uint32(16), no, no, no)), unix.EINVAL)
	fails(t, "an error that is a command", c.Flagged(vt.Info, 1<<5, vt.Cat(uint32(16), no, no, no)), unix.EINVAL)
}

func TestRegions(t *testing.T) {
	d := serve(t)
	c := d.connect(t)
	read := func(region uint32, off uint64, n int, want []byte) {
		t.Helper()
		works(t, "read", c.Read(region, off, uint32(n)), vt.Cat(off, region, uint32(n), want))
	}
	works(t, "write", c.Write(bar, 0x10, vt.Cat(uint32(0x44332211), uint32(0x88776655))), vt.Cat(uint64(0x10), bar, uint32(8)))
	read(bar, 0x10, 4, vt.Cat(uint32(0x44332211)))
	read(bar, 0x10, 8, vt.Cat(uint32(0x44332211), uint32(0x88776655)))
	for off := range 8 { // bytes of words at any position
		for n := 1; off+n <= 8; n++ {
			read(bar, uint64(0x10+off), n, []byte{0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88}[off:off+n])
		}
	}
	d.regs.Write32(0x10000, 9)
	read(2, 0x10000, 4, vt.Cat(no)) // no registers there
	read(2, 4<<30+0x10, 4, vt.Cat(no))
	read(2, 8<<30-4, 4, vt.Cat(no))
	works(t, "write behind the registers", c.Write(2, 0x10000, vt.Cat(uint32(7))), vt.Cat(uint64(0x10000), uint32(2), uint32(4)))
	read(2, 0xfffc, 8, vt.Cat(no, no))
	if v := d.regs.Read32(0x10000); v != 9 {
		t.Errorf("a write behind the registers arrived: %d", v)
	}
	if err := c.Post(vt.Write, vt.Cat(uint64(0x20), bar, uint32(4), uint32(9))); err != nil {
		t.Fatal(err)
	}
	read(bar, 0x20, 4, vt.Cat(uint32(9)))
	big := c.Read(bar, 0, 64<<10)
	if len(big.Body) != 16+64<<10 || word(big.Body[16+0x14:]) != 0x88776655 {
		t.Errorf("the whole BAR: %d bytes", len(big.Body))
	}
	for name, r := range map[string]vt.Reply{
		"no BAR":        c.Read(1, 0, 4),
		"ROM":           c.Read(6, 0, 4),
		"region 100":    c.Read(100, 0, 4),
		"no bytes":      c.Read(bar, 0, 0),
		"beyond":        c.Read(bar, 64<<10-3, 4),
		"far":           c.Read(bar, ^uint64(0)-2, 4),
		"too much":      c.Read(2, 0, 1<<20+1),
		"with data":     c.Do(vt.Read, vt.Cat(uint64(0), bar, uint32(4), no)),
		"short":         c.Do(vt.Read, vt.Cat(uint64(0), bar)),
		"a byte":        c.Write(bar, 0, []byte{1}),
		"in a word":     c.Write(bar, 2, vt.Cat(no)),
		"no data":       c.Do(vt.Write, vt.Cat(uint64(0), bar, uint32(4))),
		"too much data": c.Do(vt.Write, vt.Cat(uint64(0), bar, uint32(4), uint64(0))),
		"write beyond":  c.Write(cfg, 4094, vt.Cat(no)),
	} {
		fails(t, name, r, unix.EINVAL)
	}
	if n := len(c.Read(2, 0, 1<<20).Body); n != 16+1<<20 {
		t.Errorf("the largest read has %d bytes", n)
	}
}

func TestReset(t *testing.T) {
	d := serve(t)
	c := d.ready(t)
	c.Write(cfg, 0x10, vt.Cat(uint32(0xabcd0000)))
	works(t, "reset", c.Do(vt.Reset, nil), nil)
	works(t, "BAR after reset", c.Read(cfg, 0x10, 4), vt.Cat(uint64(0x10), cfg, uint32(4), no))
	c.Write(cfg, 4, []byte{6, 0})
	c.Write(cfg, 0x78, []byte{0x10, 0xa8}) // Function Level Reset
	works(t, "command after FLR", c.Read(cfg, 4, 2), vt.Cat(uint64(4), cfg, uint32(2), uint16(0)))
	if d.resets != 2 || d.Books().Resets != 2 {
		t.Errorf("%d resets, %d in the books", d.resets, d.Books().Resets)
	}
}

// TestConfigSpace checks every byte against an independent description, and that nothing else can be changed.
func TestConfigSpace(t *testing.T) {
	c := serve(t).connect(t)
	space := func() []byte { return c.Read(cfg, 0, 4096).Body[16:] }
	want := make([]byte, 4096)
	put := func(off int, b ...byte) { copy(want[off:], b) }
	put(0, 0xee, 0x10, 0x38, 0x90, 0, 0, 0x10, 0, 3, 0, 0x80, 5)
	put(0x18, 0x0c) // BAR 2: 64 bits, prefetchable
	put(0x2c, 0xee, 0x10, 7, 0)
	put(0x34, 0x40)
	put(0x3d, 1)
	put(0x40, 1, 0x48, 3, 0, 8)
	put(0x48, 5, 0x60, 0x86, 0)
	put(0x60, 0x11, 0x70, 69, 0, 0, 0x80, 0, 0, 0, 0x90)
	put(0x70, 0x10, 0, 2, 0, 0x21, 0x80, 0, 0x10, 0x10, 0x28, 0, 0, 0x82)
	put(0x82, 0x82)
	put(0x9c, 6)
	put(0xa0, 2)
	put(0x100, 1, 0, 0x82, 0x14)
	put(0x10c, 0x30, 0x20, 0x46)
	put(0x115, 0xe0)
	put(0x148, 3, 0, 1, 0, 0xee, 0x10, 0x38, 0x90)
	if got := space(); !slices.Equal(got, want) {
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("byte %#x is %#x, want %#x", i, got[i], want[i])
			}
		}
	}
	c.Write(cfg, 0, slices.Repeat([]byte{0xff}, 0x78))
	c.Write(cfg, 0x7a, slices.Repeat([]byte{0xff}, 4096-0x7a)) // everything but FLR
	put(4, 0x46, 5)
	put(0x0c, 0xff)
	put(0x10, 0, 0, 0xff, 0xff)
	put(0x18, 0x0c, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff) // 8 GiB
	put(0x3c, 0xff)
	put(0x44, 0x0b)
	put(0x4a, 0xf7)
	put(0x4c, 0xfc, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
	put(0x63, 0xc0)
	put(0x80, 0xfb, 1)
	put(0x98, 0x1f)
	put(0xa0, 0x1f)
	put(0x108, 0x30, 0xf0, 0xff, 7, 0x30, 0xf0, 0xff, 7)
	put(0x114, 0xc1, 0xf1)
	if got := space(); !slices.Equal(got, want) {
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("after ones: byte %#x is %#x, want %#x", i, got[i], want[i])
			}
		}
	}
}

func TestPower(t *testing.T) {
	d := serve(t)
	c := d.ready(t)
	fd := memfd(t, "ram", 4096)
	works(t, "map", c.Map(0, 4096, 0, 3, fd), nil)
	c.Write(bar, 0, vt.Cat(uint32(5)))
	c.Write(cfg, 0x44, []byte{3}) // D3hot
	works(t, "asleep", c.Read(bar, 0, 4), vt.Cat(uint64(0), bar, uint32(4), uint32(0xffffffff)))
	c.Write(bar, 0, vt.Cat(uint32(6)))
	if err := d.memory.Read(0, make([]byte, 1)); err == nil {
		t.Error("DMA of a function that is in D3hot")
	}
	c.Write(cfg, 0x44, []byte{0})
	works(t, "awake", c.Read(bar, 0, 4), vt.Cat(uint64(0), bar, uint32(4), uint32(5)))
	if err := d.memory.Read(0, make([]byte, 1)); err != nil {
		t.Error(err)
	}
	d.mu.Lock()
	d.missing = true
	d.mu.Unlock()
	works(t, "gone", c.Read(cfg, 0, 2), vt.Cat(uint64(0), cfg, uint32(2), uint16(0xffff)))
	works(t, "gone", c.Read(bar, 3, 2), vt.Cat(uint64(3), bar, uint32(2), uint16(0xffff)))
	works(t, "gone", c.Write(cfg, 0x3c, []byte{9}), vt.Cat(uint64(0x3c), cfg, uint32(1)))
}
