// SPDX-License-Identifier: Apache-2.0

package pipeline_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// packedBySpecification packs samples one by one, as shown in MIPI CSI-2 §11.4.4 and §11.4.5.
func packedBySpecification(words []byte, bits int) (b []byte) {
	group := map[int]int{10: 4, 12: 2}[bits]
	for len(words) > 0 {
		low := 0
		for i := range group {
			v := int(binary.LittleEndian.Uint16(words[2*i:]))
			b = append(b, byte(v>>(bits-8)))
			low |= v & (1<<(bits-8) - 1) << (i * (bits - 8))
		}
		b, words = append(b, byte(low)), words[2*group:]
	}
	return b
}

// checkPacking packs and unpacks the samples in raw, of which only the lower bits are used.
func checkPacking(t *testing.T, raw []byte, bits int) {
	t.Helper()
	s := pipeline.Samples{Bits: bits, Packed: true}
	p, _ := s.Format()
	g := p.Group()
	words := bytes.Clone(raw[:len(raw)/(2*g.Pixels)*2*g.Pixels])
	for i := 1; i < len(words); i += 2 {
		words[i] &= byte(1<<(bits-8) - 1)
	}
	packed := make([]byte, len(words)/2/g.Pixels*g.Bytes+1)
	packed[len(packed)-1] = 0xa5
	if err := s.Pack(packed, words); err != nil {
		t.Fatal(err)
	}
	if want := append(packedBySpecification(words, bits), 0xa5); !bytes.Equal(packed, want) {
		t.Fatalf("%d bits: %x is packed as %x, want %x", bits, words, packed, want)
	}
	back := make([]byte, len(words))
	if s.Unpack(back, packed[:len(packed)-1]); !bytes.Equal(back, words) {
		t.Fatalf("%d bits: %x comes back as %x", bits, words, back)
	}
	if len(words) > 0 { // one bit too many, in one of the words
		at := int(raw[0]) * 2 % len(words)
		words[at+1] |= 1 << (bits - 8)
		if err := s.Pack(packed, words); !errors.Is(err, pipeline.ErrDepth) {
			t.Fatalf("%d bits, %x: %v", bits, words, err)
		}
	}
}

// TestPackingLosesNothing tests lines of every length, and every sample value at every position.
func TestPackingLosesNothing(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, bits := range []int{10, 12} {
		for n := range 300 {
			raw := make([]byte, n)
			for i := range raw {
				raw[i] = byte(rnd.Uint32())
			}
			checkPacking(t, raw, bits)
		}
		for v := range 1 << bits {
			raw := make([]byte, 64)
			for i := range 32 {
				binary.LittleEndian.PutUint16(raw[2*i:], uint16(v+i*37))
			}
			checkPacking(t, raw, bits)
		}
	}
}

func FuzzPacking(f *testing.F) {
	f.Add([]byte("0123456789abcdefghijklmnopqrstuvwxyz"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		checkPacking(t, raw, 10)
		checkPacking(t, raw, 12)
	})
}

func TestWhatCannotBePacked(t *testing.T) {
	for _, tt := range []struct {
		pixel         pipeline.PixelFormat
		width, stride int
		want          pipeline.PixelFormat // 0 if it cannot be packed
	}{
		{pipeline.RGGB10, 640, 1280, pipeline.RGGB10P},
		{pipeline.Mono12, 642, 1284, pipeline.Mono12P},
		{pipeline.BGGR10, 642, 1284, 0},
		{pipeline.GRBG12, 640, 2048, 0},
		{pipeline.RGGB8, 640, 640, 0},
		{pipeline.RGGB14, 640, 1280, 0},
		{pipeline.RGGB10P, 640, 800, 0},
		{pipeline.UYVY, 640, 1280, 0},
	} {
		f, err := pipeline.Format{Pixel: tt.pixel, Width: tt.width, Height: 4, Stride: tt.stride}.Packed()
		if tt.want == 0 && !errors.Is(err, pipeline.ErrFormat) || tt.want != 0 && (err != nil || f.Pixel != tt.want) {
			t.Errorf("%s of %d pixels: %v, %v", tt.pixel, tt.width, f, err)
		}
	}
}

// BenchmarkPacking packs, unpacks and copies 32 frames of 1080p in turn, more than fits into caches. It reports the
// medians of the rates in GB of words per second, and their ratios to the copy's rate with minimum and maximum.
func BenchmarkPacking(b *testing.B) {
	const size = 32 * 1920 * 1080 * 2
	for _, bits := range []int{10, 12} {
		b.Run(fmt.Sprint(bits, " bits"), func(b *testing.B) {
			s := pipeline.Samples{Bits: bits, Packed: true}
			words, packed, other := make([]byte, size), make([]byte, size*bits/16), make([]byte, size)
			var rates, shares [2][]float64
			measure := func(do func()) float64 {
				began := time.Now()
				do()
				return size / 1e9 / time.Since(began).Seconds()
			}
			for b.Loop() {
				whole := measure(func() { copy(other, words) })
				pack := measure(func() { _ = s.Pack(packed, words) }) // all samples are 0
				unpack := measure(func() { s.Unpack(other, packed) })
				for i, r := range []float64{pack, unpack} {
					rates[i], shares[i] = append(rates[i], r), append(shares[i], r/whole)
				}
			}
			for i, name := range []string{"pack", "unpack"} {
				slices.Sort(rates[i])
				slices.Sort(shares[i])
				mid, last := len(rates[i])/2, len(rates[i])-1
				b.ReportMetric(rates[i][mid], name+"-GB/s")
				b.ReportMetric(shares[i][mid], name+"/copy")
				b.Logf("%s %.3g (%.3g to %.3g) GB/s, %.3g (%.3g to %.3g) of a copy", name, rates[i][mid], rates[i][0], rates[i][last],
					shares[i][mid], shares[i][0], shares[i][last])
			}
		})
	}
}
