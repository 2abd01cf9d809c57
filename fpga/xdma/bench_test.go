// SPDX-License-Identifier: Apache-2.0

package xdma

import (
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
)

// Frames cost the ring no allocations.
func TestRingDoesNotAllocate(t *testing.T) {
	p := newPair(t, func(c *Config) { c.Watchdog = time.Hour })
	s := newSender(t, p, 2, 2)
	if err := p.in.Start([]int{0, 1, 2}); err != nil {
		t.Fatal(err)
	}
	go func() { s.ended <- s.Run(t.Context()) }()
	slot, trailer := s.frame(0)
	for s.Send(t.Context(), slot, trailer) != nil {
		time.Sleep(time.Millisecond)
	}
	ctx := t.Context()
	next := func() {
		done, err := p.in.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.in.Free(done.Slot); err != nil {
			t.Fatal(err)
		}
	}
	next()
	if n := testing.AllocsPerRun(200, func() {
		if err := s.Send(ctx, <-s.free, trailer); err != nil {
			t.Fatal(err)
		}
		next()
	}); n != 0 {
		t.Errorf("%v allocations for a frame sent and received", n)
	}
}

// cpu returns the time that this process has used, in user and system mode.
func cpu(tb testing.TB) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// void is host memory in which only descriptors, trailers and write-backs exist. Pixels cost nothing, so that only the
// driver and the model's registers are measured.
type void struct{ *bus }

func (v void) Read(addr uint64, p []byte) error {
	if addr < pixels {
		return v.bus.Read(addr, p)
	}
	return nil
}

const pixels = 1 << 50 // bus addresses from here on are pixels

// counted counts register accesses.
type counted struct {
	fpga.Registers
	reads, writes atomic.Int64
}

func (c *counted) Read32(off uint32) uint32     { c.reads.Add(1); return c.Registers.Read32(off) }
func (c *counted) Write32(off uint32, v uint32) { c.writes.Add(1); c.Registers.Write32(off, v) }

// way is one way to move a frame to the card.
type way struct {
	name string
	move func(frames int)

	cpu           time.Duration
	reads, writes int64
}

// BenchmarkFrame compares the CPU time of a 1080p frame of 64 segments, in one run and alternating: with the ring, with
// a prepared transfer, and with one call per copy that makes its descriptors each time, as in NVIDIA's demonstration.
func BenchmarkFrame(b *testing.B) {
	const size, segments, batch = 1920 * 1080 * 2, 64, 50
	host := void{newBus()}
	var count *counted
	d, _, _ := startModel(b, model.Config{
		Bus: host, H2C: []model.Interface{model.Stream, model.MemoryMapped}, C2H: []model.Interface{model.MemoryMapped}, RAM: 8 << 20,
	}, func(c *Config) {
		count = &counted{Registers: c.BARs[1].Registers}
		c.BARs[1].Registers = count
		c.Alloc = cached(c.Alloc)
	})
	var frames []fpga.Memory
	for i := range 4 {
		var m fpga.Memory
		for k := range segments {
			m.Segments = append(m.Segments, fpga.Segment{Addr: pixels + uint64(i*segments+k)<<20, Len: size / segments})
		}
		frames = append(frames, m)
	}
	ways := []*way{ringWay(b, d, frames), preparedWay(b, d, frames), callWay(b, d, frames)}
	rounds := 0
	for b.Loop() {
		rounds++
		for _, w := range ways {
			begin, reads, writes := cpu(b), count.reads.Load(), count.writes.Load()
			w.move(batch)
			w.cpu += cpu(b) - begin
			w.reads += count.reads.Load() - reads
			w.writes += count.writes.Load() - writes
		}
	}
	n := float64(rounds * batch)
	for _, w := range ways {
		ns := float64(w.cpu.Nanoseconds()) / n
		b.ReportMetric(ns, w.name+"-cpu-ns/frame")
		b.ReportMetric(ns/(segments+1), w.name+"-cpu-ns/descriptor")
		b.ReportMetric(float64(w.reads)/n, w.name+"-reads/frame")
		b.ReportMetric(float64(w.writes)/n, w.name+"-writes/frame")
	}
	b.ReportMetric(float64(ways[1].cpu)/float64(ways[0].cpu), "prepared/ring")
	b.ReportMetric(float64(ways[2].cpu)/float64(ways[0].cpu), "call/ring")
	b.ReportMetric(0, "ns/op")
}

func ringWay(b *testing.B, d *Device, frames []fpga.Memory) *way {
	free := make(chan int, len(frames))
	r, err := d.NewSendRing(SendConfig{Trailer: 128, Depth: len(frames), Done: func(slot int, _ error) { free <- slot }})
	if err != nil {
		b.Fatal(err)
	}
	for _, m := range frames {
		slot, err := r.Add(m)
		if err != nil {
			b.Fatal(err)
		}
		free <- slot
	}
	go func() { _ = r.Run(b.Context()) }()
	for r.Stats().Starts == 0 {
		time.Sleep(time.Millisecond)
	}
	trailer := make([]byte, 128)
	return &way{name: "ring", move: func(frames int) {
		for range frames {
			if err := r.Send(b.Context(), <-free, trailer); err != nil {
				b.Fatal(err)
			}
		}
		if err := r.Drain(b.Context()); err != nil {
			b.Fatal(err)
		}
	}}
}

func preparedWay(b *testing.B, d *Device, frames []fpga.Memory) *way {
	var transfers []*Transfer
	for _, m := range frames {
		t, err := d.NewTransfer(fpga.H2C, 1, m, 0)
		if err != nil {
			b.Fatal(err)
		}
		transfers = append(transfers, t)
	}
	return &way{name: "prepared", move: func(frames int) {
		for i := range frames {
			if _, err := transfers[i%len(transfers)].Run(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	}}
}

func callWay(b *testing.B, d *Device, memory []fpga.Memory) *way {
	return &way{name: "call", move: func(frames int) {
		for i := range frames {
			t, err := d.NewTransfer(fpga.H2C, 1, memory[i%len(memory)], 0)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := t.Run(b.Context()); err != nil {
				b.Fatal(err)
			}
			if err := t.Close(); err != nil {
				b.Fatal(err)
			}
		}
	}}
}

// cached reuses coherent memory that was closed, because its allocation is not part of the comparison.
func cached(alloc func(int) (Coherent, error)) func(int) (Coherent, error) {
	spare := map[int][]Coherent{}
	return func(size int) (Coherent, error) {
		if list := spare[size]; len(list) > 0 {
			spare[size] = list[:len(list)-1]
			return list[len(list)-1], nil
		}
		m, err := alloc(size)
		c := m
		c.Close = func() error {
			spare[size] = append(spare[size], c)
			return nil
		}
		return c, err
	}
}
