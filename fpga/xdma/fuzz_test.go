// SPDX-License-Identifier: Apache-2.0

package xdma

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/fpga"
)

// noise is a device whose registers, interrupts and memory writes come from the fuzzer's bytes. Identifiers are
// correct, so that the driver gets past them, unless the bytes say otherwise.
type noise struct {
	mu    sync.Mutex
	bytes []byte
	used  int
	mem   [][]byte // coherent memory
}

func (n *noise) byte() byte {
	if n.used >= len(n.bytes) {
		return 0
	}
	n.used++
	return n.bytes[n.used-1]
}

func (n *noise) Vectors() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return int(n.byte() % 40)
}

func (n *noise) Read32(off uint32) uint32 {
	n.mu.Lock()
	defer n.mu.Unlock()
	how := n.byte()
	n.scribble()
	switch {
	case off&0xff == 0 && how < 0xf0 && off>>12 <= 3:
		return (0x1fc0+off>>12)<<16 | off>>8&0xf<<8 | 1<<15&(off<<7) // odd channels are streams
	case off&0xff == regControl && how < 0xf0:
		return controlRun
	case how == 0xff:
		return gone
	case how > 0xe0:
		return uint32(n.byte())<<24 | uint32(n.byte())<<16 | uint32(n.byte())<<8 | uint32(n.byte())
	}
	return uint32(how & 0x3e)
}

// scribble writes something that may look like a write-back.
func (n *noise) scribble() {
	if how := n.byte(); how > 0x80 && len(n.mem) > 0 {
		m := n.mem[int(how)%len(n.mem)]
		at := int(n.byte()) * 32 % len(m)
		copy(m[at:], []byte{n.byte() & 1, 0, 0xb4, 0x52, n.byte(), 0, 0, 0})
	}
}

func (n *noise) Write32(uint32, uint32) {}

func (n *noise) Wait(ctx context.Context, _ int) error {
	n.mu.Lock()
	how := n.byte()
	n.mu.Unlock()
	if how&1 == 1 {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

func (n *noise) coherent(size int) (Coherent, error) {
	b := alloc(size) // outside the Go heap: the device's writes race with the driver's reads, as they do in reality
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mem = append(n.mem, b)
	return Coherent{
		Memory: fpga.Memory{Bytes: b, Segments: []fpga.Segment{{Addr: uint64(len(n.mem)) << 32, Len: size}}},
		Close:  func() error { return nil },
	}, nil
}

func (n *noise) unmap(t *testing.T) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, m := range n.mem {
		if err := unix.Munmap(m[:cap(m)]); err != nil {
			t.Error(err)
		}
	}
	n.mem = nil
}

// FuzzDevice exercises the whole driver on a device with arbitrary behaviour: it must neither panic nor wait forever.
func FuzzDevice(f *testing.F) {
	f.Add([]byte{}, false)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, true)
	f.Add(random(120), false)
	f.Add(random(121), true)
	f.Fuzz(func(t *testing.T, b []byte, poll bool) {
		synctest.Test(t, func(t *testing.T) {
			n := &noise{bytes: b}
			defer n.unmap(t)
			d, err := Open(Config{BARs: []fpga.BAR{{Size: 1 << 16, Registers: n}}, Interrupts: n, Alloc: n.coherent, Poll: poll})
			if err != nil {
				return
			}
			mem := fpga.Memory{Bytes: make([]byte, 512), Segments: []fpga.Segment{{Addr: 1 << 20, Len: 256}, {Addr: 1 << 21, Len: 256}}}
			for _, c := range d.Channels() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				switch {
				case !c.Stream:
					fuzzTransfer(ctx, d, c, mem)
				case c.Direction == fpga.C2H:
					fuzzRing(ctx, d, c, mem, 16)
					fuzzRing(ctx, d, c, mem, 0)
				default:
					fuzzSendRing(ctx, d, c, mem)
				}
				_ = d.Recover(ctx, c.Direction, c.Channel)
				cancel()
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_ = d.EnableUser(0)
			_ = d.WaitUser(ctx, 0)
		})
	})
}

func fuzzTransfer(ctx context.Context, d *Device, c ChannelInfo, mem fpga.Memory) {
	tr, err := d.NewTransfer(c.Direction, c.Channel, mem, 0)
	if err != nil {
		return
	}
	_, _ = tr.Run(ctx)
	_, _ = tr.Run(ctx)
	_ = tr.Close()
}

func fuzzRing(ctx context.Context, d *Device, c ChannelInfo, mem fpga.Memory, trailer int) {
	r, err := d.NewRing(RingConfig{Channel: c.Channel, Slots: []fpga.Memory{mem, mem}, Trailer: trailer})
	if err != nil {
		return
	}
	for range 2 {
		err := r.Start([]int{1})
		for range 50 {
			if err != nil {
				break
			}
			var done Completion
			_ = r.Free(0)
			if done, err = r.Next(ctx); err == nil {
				err = r.Free(done.Slot)
			}
		}
		_, _ = r.Counters()
		_ = r.Stop()
	}
	_ = r.Close()
}

func fuzzSendRing(ctx context.Context, d *Device, c ChannelInfo, mem fpga.Memory) {
	r, err := d.NewSendRing(SendConfig{Channel: c.Channel, Trailer: 16, Done: func(int, error) {}})
	if err != nil {
		return
	}
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	go func() { ended <- r.Run(ctx) }()
	synctest.Wait()
	for range 4 {
		if slot, err := r.Add(mem); err == nil {
			_ = r.Send(ctx, slot, make([]byte, 16))
		}
	}
	_ = r.Drain(ctx)
	cancel()
	<-ended
	_ = r.Close()
}
