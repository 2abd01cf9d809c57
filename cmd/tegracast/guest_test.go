package main

import (
	"flag"
	"io"
	"log/slog"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"tegracast/fpga"
	"tegracast/tegra"
)

var devicePath = flag.String("device", "", "device file of the kernel module with an XDMA core behind it")

// TestHaltList takes memory from a function whose channels run, and finds them stopped: by the kernel, nobody else writes
// to the core. TestVirtualJetson runs it in the machine.
func TestHaltList(t *testing.T) {
	if *devicePath == "" {
		t.Skip("NEEDS a device of the kernel module tegra_p2p: -args -device /dev/tegra_p2p0")
	}
	board, err := openBoard(env{out: io.Discard, err: io.Discard, log: slog.New(slog.DiscardHandler)}, *devicePath, "host")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := board.Close(); err != nil {
			t.Error(err)
		}
	}()
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
