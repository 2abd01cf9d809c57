// SPDX-License-Identifier: Apache-2.0

package crc

import (
	"hash/crc32"
	"math/rand/v2"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

var functions = []struct {
	name  string
	sum   func(uint32, []byte) uint32
	table *crc32.Table
}{
	{"IEEE", IEEE, crc32.IEEETable},
	{"Castagnoli", Castagnoli, crc32.MakeTable(crc32.Castagnoli)},
}

// TestSame compares the results with hash/crc32, of data at odd addresses in one and in two parts and after any CRC: all
// lengths up to 4096, lengths from just below the shortest that hash/crc32 does not take, and some long ones.
func TestSame(t *testing.T) {
	r := rand.NewChaCha8([32]byte{1})
	random := make([]byte, 1<<20+64)
	_, _ = r.Read(random)
	for _, f := range functions {
		for i := range 4700 {
			n := i
			if i > 4600 {
				n = int(r.Uint64() % (1 << 20))
			} else if i > 4096 {
				n = short - 100 + i - 4097
			}
			b, from := random[r.Uint64()%64:][:max(n, 0)], uint32(r.Uint64())
			want := crc32.Update(from, f.table, b)
			if got := f.sum(from, b); got != want {
				t.Fatalf("%s of %d bytes after %#08x is %#08x, want %#08x", f.name, n, from, got, want)
			}
			at := r.Uint64() % uint64(len(b)+1)
			if got := f.sum(f.sum(from, b[:at]), b[at:]); got != want {
				t.Fatalf("%s of %d and %d bytes after %#08x is %#08x, want %#08x", f.name, at, len(b[at:]), from, got, want)
			}
		}
	}
}

// TestReadsNothingElse computes the CRC of memory with pages before and behind it that cannot be read.
func TestReadsNothingElse(t *testing.T) {
	page, size := os.Getpagesize(), 2*max(short, 16<<10)
	size += -size & (page - 1)
	mem, err := unix.Mmap(-1, 0, size+2*page, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	b := mem[page:][:size]
	if err := unix.Mprotect(b, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		t.Fatal(err)
	}
	r := rand.NewChaCha8([32]byte{2})
	_, _ = r.Read(b)
	for _, f := range functions {
		for n := size; n > 0; n -= 1 + int(r.Uint64()%41) {
			for _, part := range [][]byte{b[:n], b[size-n:]} {
				if got, want := f.sum(0, part), crc32.Checksum(part, f.table); got != want {
					t.Fatalf("%s of %d bytes is %#08x, want %#08x", f.name, n, got, want)
				}
			}
		}
	}
}

func TestAllocatesNothing(t *testing.T) {
	b := make([]byte, 1<<20)
	for _, f := range functions {
		if n := testing.AllocsPerRun(10, func() { f.sum(1, b) }); n != 0 {
			t.Errorf("%s allocates %v times, want none", f.name, n)
		}
	}
}

func FuzzSame(f *testing.F) {
	f.Add(uint32(0), uint16(100), []byte("123456789"))
	f.Fuzz(func(t *testing.T, from uint32, repeat uint16, b []byte) {
		var long []byte
		for range repeat % 3000 {
			long = append(long, b...)
		}
		for _, fn := range functions {
			if got, want := fn.sum(from, long), crc32.Update(from, fn.table, long); got != want {
				t.Fatalf("%s of %d bytes after %#08x is %#08x, want %#08x", fn.name, len(long), from, got, want)
			}
		}
	})
}

// BenchmarkMemory reads a gigabyte of frames, which fits in no cache, alternating between this package and hash/crc32.
func BenchmarkMemory(b *testing.B) {
	memory := make([]byte, 1<<30)
	for i := range memory {
		memory[i] = byte(i)
	}
	const frame = 4 << 20
	for _, f := range functions {
		library := func(from uint32, p []byte) uint32 { return crc32.Update(from, f.table, p) }
		for name, sum := range map[string]func(uint32, []byte) uint32{"": f.sum, "Library": library} {
			b.Run(f.name+name, func(b *testing.B) {
				b.SetBytes(int64(len(memory)))
				for b.Loop() {
					for at := 0; at < len(memory); at += frame {
						sum(0, memory[at:][:frame])
					}
				}
			})
		}
	}
}
