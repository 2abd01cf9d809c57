// SPDX-License-Identifier: Apache-2.0

package crc

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

var functions = []struct {
	name  string
	sum   func(uint32, []byte) uint32
	table *crc32.Table
}{
	{"IEEE", IEEE, crc32.IEEETable},
	{"Castagnoli", Castagnoli, crc32.MakeTable(crc32.Castagnoli)},
}

// TestSame compares the results with hash/crc32, for lengths from just below the shortest that is folded, some long
// ones, odd addresses and any initial CRC.
func TestSame(t *testing.T) {
	r := rand.NewChaCha8([32]byte{1})
	random := make([]byte, 1<<20+9)
	_, _ = r.Read(random)
	for _, f := range functions {
		for i := range 500 {
			n := short - 100 + i
			if i >= 400 {
				n = int(r.Uint64() % (1 << 20))
			}
			b, from := random[r.Uint64()%9:][:n], uint32(r.Uint64())
			if got, want := f.sum(from, b), crc32.Update(from, f.table, b); got != want {
				t.Fatalf("%s of %d bytes after %#08x is %#08x, want %#08x", f.name, n, from, got, want)
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
