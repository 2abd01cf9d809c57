package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ram is the machine's memory as the card's bus reaches it: no SMMU, bus addresses are physical ones.
type ram struct {
	bytes []byte
	base  uint64
}

// mapRAM maps the machine's RAM, whose first byte has the address base, and closes f.
func mapRAM(f *os.File, base uint64) (*ram, error) {
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("the machine's RAM: %w", err)
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("the machine's RAM: %w", err)
	}
	return &ram{bytes: b, base: base}, nil
}

func (r *ram) close() { _ = unix.Munmap(r.bytes) }

// at returns n bytes from address addr on.
func (r *ram) at(addr uint64, n int) ([]byte, error) {
	off := addr - r.base
	if addr < r.base || off > uint64(len(r.bytes)) || uint64(n) > uint64(len(r.bytes))-off {
		return nil, fmt.Errorf("bus access to %#x, %d bytes: no memory there", addr, n)
	}
	return r.bytes[off : off+uint64(n)], nil
}

// Read implements model.Bus.
func (r *ram) Read(addr uint64, p []byte) error {
	b, err := r.at(addr, len(p))
	copy(p, b)
	return err
}

// Write implements model.Bus.
func (r *ram) Write(addr uint64, p []byte) error {
	b, err := r.at(addr, len(p))
	copy(b, p)
	return err
}
