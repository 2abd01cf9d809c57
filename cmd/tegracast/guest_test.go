package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"log/slog"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"tegracast/fpga"
	"tegracast/fpga/model"
	"tegracast/fpga/xdma"
	"tegracast/tegra"
)

var devicePath = flag.String("device", "", "device file of the kernel module with an XDMA core behind it")

// boardUnderTest opens the device that -device names.
func boardUnderTest(t *testing.T) *boardDevice {
	t.Helper()
	if *devicePath == "" {
		t.Skip("NEEDS a device of the kernel module tegra_p2p: -args -device /dev/tegra_p2p0")
	}
	board, err := openBoard(env{out: io.Discard, err: io.Discard, log: slog.New(slog.DiscardHandler)}, *devicePath, "host")
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

// TestHaltList takes memory from a function whose channels run, and finds them stopped: by the kernel, nobody else writes
// to the core. TestVirtualJetson runs it in the machine.
func TestHaltList(t *testing.T) {
	board := boardUnderTest(t)
	for round := range 3 {
		core, err := board.OpenXDMA(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		halt := core.HaltList()
		if len(halt) != 3 {
			t.Fatalf("%d channels, the card has 3", len(halt))
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
		revokeOne(t, board.device)
		for _, op := range halt {
			for i := 0; regs[op.BAR].Read32(op.Offset-8)&1 != 0; i++ { // the kernel does not wait long for the card's answer
				if i == 200 {
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
	case <-time.After(10 * time.Second):
		t.Fatal("not revoked")
	}
	_ = p.Unpin() // ErrRevoked
}

// TestRevokedInFlight takes memory away that XDMA writes at this moment: nothing is written once it is gone, and the next
// transfer works. TestVirtualBoard runs it in the machine.
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

// revokeInFlight has the core write memory, transfer after transfer, and unmaps it after a while.
func revokeInFlight(t *testing.T, board *boardDevice, core *xdma.Device, after time.Duration) {
	t.Helper()
	const size = model.DefaultRAM
	fd, err := unix.MemfdCreate("target", unix.MFD_CLOEXEC)
	if err == nil {
		err = unix.Ftruncate(fd, size)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	view := func() []byte {
		b, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	target, seen := view(), view()
	defer unix.Munmap(seen)
	pin, err := board.device.Pin(uintptr(unsafe.Pointer(&target[0])), size, tegra.FromDevice, tegra.WriteBack)
	if err != nil {
		t.Fatal(err)
	}
	var segments []fpga.Segment
	for _, s := range pin.Segments {
		segments = append(segments, fpga.Segment{Addr: s.IOVA, Len: s.Len})
	}
	transfer, err := core.NewTransfer(fpga.C2H, 0, fpga.Memory{Segments: segments}, 0)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { // the core does not learn that its writes are refused: it is the kernel that stops it
		defer close(ended)
		for {
			_, _ = transfer.Run(t.Context())
			select {
			case <-pin.Revoked():
				return
			default:
			}
		}
	}()
	time.Sleep(after)
	if err := unix.Munmap(target); err != nil {
		t.Fatal(err)
	}
	for i := range seen {
		seen[i] = 0xa5
	}
	<-ended
	if n := bytes.Count(seen, []byte{0xa5}); n != size {
		t.Fatalf("%d bytes were written after the memory was gone", size-n)
	}
	_ = pin.Unpin() // ErrRevoked
	generation, fenced := board.device.Fenced()
	if !fenced {
		t.Fatal("no fence")
	}
	if err := errors.Join(core.Recover(t.Context(), fpga.C2H, 0), board.device.Resume(generation), transfer.Close()); err != nil {
		t.Fatal(err)
	}
}
