// SPDX-License-Identifier: Apache-2.0

package xdma

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
)

func TestTransfers(t *testing.T) {
	b := newBus()
	d, _, _ := startModel(t, model.Loopback(b))
	for _, c := range []struct{ size, segment, card int }{
		{1, 4096, 0},
		{4097, 4096, 100},
		{64 << 10, 4096, 0},
		{64 << 10, 1 << 20, 0},
		{50000, 96, 1234}, // 521 descriptors: blocks of 64, and several pages of them
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			src, dst := b.memory(c.size, c.segment), b.memory(c.size, c.segment)
			copy(src.Bytes, random(c.size))
			for _, step := range []struct {
				dir fpga.Direction
				mem fpga.Memory
			}{{fpga.H2C, src}, {fpga.C2H, dst}} {
				tr, err := d.NewTransfer(step.dir, 0, step.mem, uint64(c.card))
				if err != nil {
					t.Fatal(err)
				}
				for range 2 { // a prepared transfer can run repeatedly
					r, err := tr.Run(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					n := uint64(c.size)
					if beats := uint64(len(step.mem.Segments) * d.DataPathWidth()); r.Counters.Bytes < n || r.Counters.Bytes > n+beats || r.Counters.Cycles == 0 {
						t.Errorf("%s: %d bytes, the counters say %+v", step.dir, n, r.Counters)
					}
				}
				if err := tr.Close(); err != nil {
					t.Error(err)
				}
			}
			if !bytes.Equal(src.Bytes, dst.Bytes) {
				t.Error("the bytes that came back are not those that were sent")
			}
		})
	}
	if b.faults != 0 {
		t.Errorf("%d accesses outside the mapped memory", b.faults)
	}
}

func TestTransferErrors(t *testing.T) {
	b := newBus()
	d, _, _ := startModel(t, model.Loopback(b))
	mem := b.memory(8192, 4096)
	fails := func(dir fpga.Direction, mem fpga.Memory, card uint64) error {
		tr, err := d.NewTransfer(dir, 0, mem, card)
		if err != nil {
			return err
		}
		defer tr.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err = tr.Run(ctx)
		return err
	}
	var status *StatusError
	if err := fails(fpga.C2H, mem, 1<<40); !errors.As(err, &status) || !strings.Contains(err.Error(), "c2h channel 0") {
		t.Errorf("card address out of range: %v", err)
	}
	stale := fpga.Memory{Segments: []fpga.Segment{mem.Segments[0], {Addr: 77 << 40, Len: 4096}}}
	if err := fails(fpga.H2C, stale, 0); !errors.As(err, &status) || status.Status&bitsReadError == 0 {
		t.Errorf("h2c from unmapped memory: %v", err)
	}
	// Writes over PCI Express are posted: the engine does not learn that one has gone astray, only the SMMU does.
	before := b.faults
	if err := fails(fpga.C2H, stale, 0); err != nil || b.faults == before {
		t.Errorf("c2h to unmapped memory: %v, %d faults", err, b.faults-before)
	}
	if err := fails(fpga.H2C, fpga.Memory{}, 0); !errors.Is(err, ErrMemory) {
		t.Errorf("no memory: %v", err)
	}
	if _, err := d.NewTransfer(fpga.H2C, 1, mem, 0); !errors.Is(err, ErrChannel) {
		t.Errorf("second channel: %v", err)
	}
	if _, err := d.NewRing(RingConfig{Slots: []fpga.Memory{mem, mem}, Trailer: 128}); !errors.Is(err, ErrChannel) {
		t.Errorf("ring on a memory-mapped channel: %v", err)
	}
	if err := fails(fpga.C2H, mem, 0); err != nil { // the channel still works after all that
		t.Errorf("after the errors: %v", err)
	}
}

// dead registers read as all ones.
type dead struct{}

func (dead) Read32(uint32) uint32       { return gone }
func (dead) Write32(_ uint32, _ uint32) {}

func TestOpenNeedsTheIdentifiers(t *testing.T) {
	_, err := Open(Config{BARs: []fpga.BAR{{Index: 0, Size: 1 << 16, Registers: dead{}}, {Index: 1, Size: 4096, Registers: dead{}}}})
	if !errors.Is(err, ErrNotFound) {
		t.Errorf("%v, want ErrNotFound", err)
	}
}

func TestChannelsAreListed(t *testing.T) {
	cfg := model.Loopback(newBus())
	cfg.H2C = []model.Interface{model.MemoryMapped, model.Stream}
	cfg.C2H = []model.Interface{model.Stream, model.MemoryMapped, model.Stream}
	d, _, _ := startModel(t, cfg)
	var got []string
	for _, c := range d.Channels() {
		got = append(got, fmt.Sprint(c.Direction, c.Channel, c.Stream))
	}
	if s, want := strings.Join(got, " "), "h2c0false h2c1true c2h0true c2h1false c2h2true"; strings.ReplaceAll(s, " ", "") != strings.ReplaceAll(want, " ", "") {
		t.Errorf("channels %s, want %s", s, want)
	}
}

// camera is a model camera with a ring on it.
type camera struct {
	*fpga.Camera
	device *Device
	tap    *tap
	model  *model.Device
	config fpga.CameraConfig
	sensor *model.Sensor
	ring   *Ring
	slots  []fpga.Memory
	bus    *bus
}

func newCamera(t testing.TB, width, height, slots, segment int, period time.Duration, options ...func(*Config)) *camera {
	t.Helper()
	return newCameraOf(t, model.SensorConfig{Width: width, Height: height, Period: period}, 0, slots, segment, 0, options...)
}

// newCameraOf makes a camera from a sensor with the given geometry and times, on a core with MSI-X or that many MSI
// vectors, and a ring with the given slices.
func newCameraOf(t testing.TB, cfg model.SensorConfig, msi, slots, segment, slice int, options ...func(*Config)) *camera {
	t.Helper()
	cfg.Format, cfg.Shift = fpga.NewFourCC([4]byte{'R', 'G', '1', '0'}), 2
	cfg.Frames = [][]byte{random(2 * cfg.Width * cfg.Height)}
	s, err := model.NewSensor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c := &camera{sensor: s, bus: newBus()}
	core := model.Camera(c.bus, s)
	core.MSI = msi
	c.device, c.model, c.tap = startModel(t, core, options...)
	for range slots {
		c.slots = append(c.slots, c.bus.memory(s.FrameBytes(), segment))
	}
	if c.ring, err = c.device.NewRing(RingConfig{Slots: c.slots, Trailer: fpga.TrailerSize, Slice: slice}); err != nil {
		t.Fatal(err)
	}
	if c.Camera, err = fpga.OpenCameraBlock(c.model.BARs()[0].Registers, 0); err != nil {
		t.Fatal(err)
	}
	c.config = fpga.CameraConfig{Width: cfg.Width, Height: cfg.Height, Format: cfg.Format, Period: cfg.Period}
	if err := c.Configure(c.config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Stop(), c.ring.Stop(), c.ring.Close()); err != nil {
			t.Error(err)
		}
		if c.bus.faults != 0 {
			t.Errorf("%d accesses outside the mapped memory", c.bus.faults)
		}
	})
	return c
}

func (c *camera) start(t testing.TB) {
	t.Helper()
	var all []int
	for i := range c.slots {
		all = append(all, i)
	}
	if err := errors.Join(c.ring.Start(all), c.Start()); err != nil {
		t.Fatal(err)
	}
}

// next takes a frame and checks every byte and the trailer.
func (c *camera) next(t testing.TB) (slot int, seq uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	done, err := c.ring.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	tr, err := fpga.ParseTrailer(done.Trailer)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, c.sensor.FrameBytes())
	c.sensor.Frame(tr.Sequence, want)
	if !bytes.Equal(want, c.slots[done.Slot].Bytes) {
		t.Fatalf("frame %d in slot %d has wrong bytes", tr.Sequence, done.Slot)
	}
	return done.Slot, tr.Sequence
}

func TestRing(t *testing.T) {
	for _, c := range []struct{ width, height, slots, segment int }{
		{64, 8, 2, 4096},
		{64, 48, 3, 960},
		{320, 240, 8, 4096},
		{320, 240, 3, 128}, // 1,201 descriptors per frame: more than the credit counter can hold
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			cam := newCamera(t, c.width, c.height, c.slots, c.segment, 2*time.Millisecond)
			cam.start(t)
			for range 3 * c.slots {
				slot, _ := cam.next(t)
				if err := cam.ring.Free(slot); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// Slots come back in any order, and one never does: the stream continues with the others, without a wrong byte.
func TestRingWithSlotsFreedInAnyOrder(t *testing.T) {
	cam := newCamera(t, 64, 48, 6, 960, time.Millisecond)
	cam.start(t)
	rng := rand.New(rand.NewPCG(1, 1))
	hostage, _ := cam.next(t)
	was := bytes.Clone(cam.slots[hostage].Bytes)
	var held []int
	last := uint64(0)
	for range 100 {
		slot, seq := cam.next(t)
		if seq <= last {
			t.Fatalf("frame %d after frame %d", seq, last)
		}
		last = seq
		held = append(held, slot)
		for len(held) > 0 && (len(held) > 2 || rng.IntN(2) == 0) {
			k := rng.IntN(len(held))
			if err := cam.ring.Free(held[k]); err != nil {
				t.Fatal(err)
			}
			held = append(held[:k], held[k+1:]...)
		}
	}
	if !bytes.Equal(was, cam.slots[hostage].Bytes) {
		t.Error("the device wrote into a slot that was not freed")
	}
}

func TestStarvedRingLosesWholeFramesAndGoesOn(t *testing.T) {
	cam := newCamera(t, 64, 48, 4, 4096, time.Millisecond)
	cam.start(t)
	var held []int
	for range 4 {
		slot, _ := cam.next(t)
		held = append(held, slot)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if done, err := cam.ring.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("slot %d, %v: all slots are held", done.Slot, err)
	}
	for _, s := range held {
		if err := cam.ring.Free(s); err != nil {
			t.Fatal(err)
		}
	}
	var seqs []uint64
	for range 10 {
		slot, seq := cam.next(t)
		seqs = append(seqs, seq)
		if err := cam.ring.Free(slot); err != nil {
			t.Fatal(err)
		}
	}
	n, err := cam.Counters()
	if err != nil {
		t.Fatal(err)
	}
	if n.Dropped == 0 || seqs[9] < 20 {
		t.Errorf("30 ms without slots: %d dropped, sequence %v", n.Dropped, seqs)
	}
}

func TestStopAndStartAgain(t *testing.T) {
	cam := newCamera(t, 320, 240, 4, 4096, time.Millisecond)
	for range 5 {
		cam.start(t)
		for range 3 {
			cam.next(t) // never freed: Start arms all slots again
		}
		if err := errors.Join(cam.Stop(), cam.ring.Stop()); err != nil {
			t.Fatal(err)
		}
		before := bytes.Clone(cam.slots[0].Bytes)
		time.Sleep(5 * time.Millisecond)
		if !bytes.Equal(before, cam.slots[0].Bytes) {
			t.Fatal("the device wrote after Stop")
		}
	}
}

func TestShortPacketIsNotTakenForAFrame(t *testing.T) {
	cam := newCamera(t, 64, 48, 3, 4096, 20*time.Millisecond)
	for _, s := range cam.ring.slots {
		binary.LittleEndian.PutUint32(s.chain.bytes[(s.chain.n-1)*descriptorSize+4:], 64) // only half a trailer fits
	}
	cam.start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if done, err := cam.ring.Next(ctx); !errors.Is(err, ErrStream) {
		t.Errorf("slot %d, %v, want ErrStream", done.Slot, err)
	}
}

func TestDeviceThatLeaves(t *testing.T) {
	b := newBus()
	m, err := model.New(model.Loopback(b))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	d, err := Open(Config{BARs: m.BARs(), Interrupts: m.Interrupts(), Alloc: b.coherent})
	if err != nil {
		t.Fatal(err)
	}
	tr, err := d.NewTransfer(fpga.H2C, 0, b.memory(4096, 4096), 0)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	<-ended
	if _, err := tr.Run(t.Context()); !errors.Is(err, ErrGone) {
		t.Errorf("%v, want ErrGone", err)
	}
}

func TestBlocksStayInsideTheirPage(t *testing.T) {
	parts := make([]part, 300)
	for i := range parts {
		parts[i].n = i + 1
	}
	mem := make([]byte, 300*descriptorSize)
	c := writeChain(mem, 0x12340000_00000f40, parts)
	for i := range parts {
		d := mem[i*descriptorSize:]
		le := binary.LittleEndian
		dw0, next := le.Uint32(d), le.Uint64(d[24:])
		adj := int(dw0 >> 8 & 0x3f)
		if dw0>>16 != 0xad4b || le.Uint32(d[4:]) != uint32(i+1) {
			t.Fatalf("descriptor %d: %x", i, d[:32])
		}
		if i == len(parts)-1 {
			if next != 0 || adj != 0 {
				t.Errorf("the last one continues at %#x", next)
			}
			break
		}
		if next != c.at(i+1) || next/4096 != (next+uint64(adj)*descriptorSize)/4096 || i+1+adj >= len(parts) {
			t.Errorf("descriptor %d: next %#x, %d adjacent", i, next, adj)
		}
	}
}
