// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cmd/tegracast/device"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/fpga/xdma"
	"github.com/tegracast/tegracast/tegra"
)

var (
	devicePath = flag.String("device", "", "device file of the kernel module with an XDMA core behind it")
	lostBy     = flag.String("lost-by", "suspend", "how TestLostInFlight has the function lose its state: suspend or fatal")
)

// boardUnderTest opens the device that -device names.
func boardUnderTest(t *testing.T) *device.Board {
	t.Helper()
	if *devicePath == "" {
		t.Skip("NEEDS a device of the kernel module tegra_p2p: -args -device /dev/tegra_p2p0")
	}
	board, err := device.OpenBoard(cudahost.Config{Backend: "host", Logger: slog.New(slog.DiscardHandler)}, *devicePath)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := board.Close(); err != nil {
			t.Error(err)
		}
	})
	return board
}

// TestHaltList takes memory from a function with running channels, and checks that the kernel has stopped them; nothing
// else writes to the core. TestVirtualJetson runs it in the machine.
func TestHaltList(t *testing.T) {
	board := boardUnderTest(t)
	for round := range 3 {
		core, err := board.OpenXDMA(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		halt := core.HaltList()
		if len(halt) != 5 {
			t.Fatalf("%d channels, the card has 5", len(halt))
		}
		regs := map[int]fpga.Registers{}
		for _, bar := range board.BARs {
			regs[bar.Index] = bar.Registers
		}
		// The halt list writes Control W1C, at 0x0c; Control is at 0x04 and W1S at 0x08 (PG195, channel control).
		for _, op := range halt {
			regs[op.BAR].Write32(op.Offset-4, 1)
			if v := regs[op.BAR].Read32(op.Offset - 8); v&1 == 0 {
				t.Fatalf("channel at %#x does not run: %#x", op.Offset-12, v)
			}
		}
		revokeOne(t, board.Function)
		for _, op := range halt {
			for i := 0; regs[op.BAR].Read32(op.Offset-8)&1 != 0; i++ { // the kernel waits only briefly for the card's answer
				if i == 3000 {
					t.Fatalf("round %d: channel at %#x still runs", round, op.Offset-12)
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
	}
}

// revokeOne pins a page and unmaps it.
func revokeOne(t *testing.T, d *tegra.Device) {
	t.Helper()
	b, err := unix.Mmap(-1, 0, tegra.PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	p, err := d.Pin(uintptr(unsafe.Pointer(&b[0])), tegra.PageSize, tegra.FromDevice, tegra.WriteBack)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Munmap(b); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.Revoked():
	case <-time.After(time.Minute):
		t.Fatal("not revoked")
	}
	_ = p.Unpin() // ErrRevoked
}

// TestRevokedInFlight removes memory while XDMA writes to it. Nothing may be written after its removal, and the next
// transfer must work. TestVirtualBoard runs it in the machine.
func TestRevokedInFlight(t *testing.T) {
	board := boardUnderTest(t)
	core, err := board.OpenXDMA(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for round := range 100 {
		revokeInFlight(t, board, core, time.Duration(round%10)*300*time.Microsecond)
	}
}

// writing is memory of a file to which the core writes, transfer after transfer.
type writing struct {
	target   []byte // the pinned mapping
	seen     []byte // another mapping
	pin      *tegra.Pin
	transfer *xdma.Transfer
	ended    chan struct{} // closed when no more transfers are started
}

const written = model.DefaultRAM // bytes per transfer

func startWriting(t *testing.T, board *device.Board, core *xdma.Device) *writing {
	t.Helper()
	fd, err := unix.MemfdCreate("target", unix.MFD_CLOEXEC)
	if err == nil {
		err = unix.Ftruncate(fd, written)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	view := func() []byte {
		b, err := unix.Mmap(fd, 0, written, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	w := &writing{target: view(), seen: view(), ended: make(chan struct{})}
	if w.pin, err = board.Function.Pin(uintptr(unsafe.Pointer(&w.target[0])), written, tegra.FromDevice, tegra.WriteBack); err != nil {
		t.Fatal(err)
	}
	var segments []fpga.Segment
	for _, s := range w.pin.Segments {
		segments = append(segments, fpga.Segment{Addr: s.IOVA, Len: s.Len})
	}
	if w.transfer, err = core.NewTransfer(fpga.C2H, 0, fpga.Memory{Segments: segments}, 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // a stopped function sends no interrupt
		<-w.pin.Revoked()
		cancel()
	}()
	go func() { // the core does not notice that its writes are refused: the kernel stops it
		defer close(w.ended)
		for ctx.Err() == nil {
			_, _ = w.transfer.Run(ctx)
		}
	}()
	return w
}

// untouched checks that nothing is written from now on.
func (w *writing) untouched(t *testing.T) {
	t.Helper()
	for i := range w.seen {
		w.seen[i] = 0xa5
	}
	<-w.ended
	if n := bytes.Count(w.seen, []byte{0xa5}); n != written {
		t.Fatalf("%d bytes were written after the memory was gone", written-n)
	}
}

// revokeInFlight makes the core write to memory, and unmaps it after a while.
func revokeInFlight(t *testing.T, board *device.Board, core *xdma.Device, after time.Duration) {
	t.Helper()
	w := startWriting(t, board, core)
	defer unix.Munmap(w.seen)
	time.Sleep(after)
	if err := unix.Munmap(w.target); err != nil {
		t.Fatal(err)
	}
	w.untouched(t)
	_ = w.pin.Unpin() // ErrRevoked
	generation, fenced := board.Function.Fenced()
	if !fenced {
		t.Fatal("no fence")
	}
	if err := errors.Join(core.Recover(t.Context(), fpga.C2H, 0), board.Function.Resume(generation), w.transfer.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestLostInFlight makes the function lose its state while XDMA writes, by a suspend of the machine's devices or a fatal
// error of its port. Nothing may be written from then on, and the core must work after it is reopened.
func TestLostInFlight(t *testing.T) {
	board := boardUnderTest(t)
	ask := map[string]func() error{
		"suspend": func() error {
			return errors.Join(os.WriteFile("/sys/power/pm_test", []byte("devices"), 0), os.WriteFile("/sys/power/state", []byte("freeze"), 0))
		},
		"fatal": func() error { return os.WriteFile("/run/inject", nil, 0o600) },
	}[*lostBy]
	for range 3 {
		core, err := board.OpenXDMA(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w := startWriting(t, board, core)
		time.Sleep(100 * time.Millisecond)
		if err := ask(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-w.pin.Revoked():
		case <-time.After(time.Minute):
			t.Fatal("nobody says that the function has lost its state")
		}
		w.untouched(t)
		_ = errors.Join(w.pin.Unpin(), w.transfer.Close()) // ErrRevoked; the engine's error does not matter any more
		generation, fenced := board.Function.Fenced()
		if !fenced {
			t.Fatal("no fence")
		}
		for began := time.Now(); board.Function.Resume(generation) != nil; time.Sleep(10 * time.Millisecond) { // EIO until it answers
			if time.Since(began) > time.Minute {
				t.Fatal("the function does not come back")
			}
		}
		if err := errors.Join(unix.Munmap(w.target), unix.Munmap(w.seen)); err != nil {
			t.Fatal(err)
		}
	}
}
