// SPDX-License-Identifier: Apache-2.0

package rtptest

import (
	"math"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// SSRC, Sequence and Timestamp are the initial values of test streams. Sequence is just before the lower half of the
// extended sequence number wraps around, and Timestamp just before the timestamp does.
const (
	SSRC      = 0x1234abcd
	Sequence  = 0x0001fffe
	Timestamp = 0xfffffff0
)

// Train is the part of package rtp's trains that tests need.
type Train interface {
	Len() int
	Bytes() int
	Packet(i int) (header, payload []byte)
}

// Format returns the plain format with the given pixels, size and frame rate. It fails the test if there is none.
func Format(t testing.TB, p pipeline.PixelFormat, w, h int, fps int) pipeline.Format {
	t.Helper()
	f, err := pipeline.NewFormat(p, w, h, pipeline.Rate{Num: fps, Den: 1})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Frame returns frame n of a moving picture with smooth and sharp parts. Padding between lines has arbitrary values.
func Frame(f pipeline.Format, n int) *pipeline.Frame {
	b := make([]byte, f.Size())
	for i := range b {
		b[i] = byte(i*7 + n)
	}
	luma := func(x, y int) byte {
		v := 128 + 60*math.Sin(float64(x+7*n)/23) + 40*math.Cos(float64(y-3*n)/17)
		if (x/16+y/16+n)%5 == 0 {
			v = 235 - v/4
		}
		return byte(v)
	}
	chroma := func(x, y, k int) byte { return byte(128 + 50*math.Sin(float64(x+y*k+11*n)/41)) }
	for y := range f.Height {
		for x := range f.Width {
			if f.Pixel == pipeline.UYVP {
				group10(b[y*f.Stride+x/2*5:], [2]byte{luma(x&^1, y), luma(x|1, y)}, [2]byte{chroma(x, y, 0), chroma(x, y, 1)}, x+y+n)
				continue
			}
			if f.Pixel == pipeline.RGB24 {
				p := b[y*f.Stride+3*x:]
				p[0], p[1], p[2] = luma(x, y), chroma(x, y, 0), chroma(x, y, 1)
				continue
			}
			if f.Pixel == pipeline.UYVY {
				b[y*f.Stride+2*x+1] = luma(x, y)
				b[y*f.Stride+2*x] = chroma(x, y, x%2)
				continue
			}
			b[y*f.Stride+x] = luma(x, y)
			if x%2 == 0 && y%2 == 0 {
				at := f.Stride*f.Height + y/2*f.Stride/2 + x/2
				b[at], b[at+f.Stride*f.Height/4] = chroma(x, y, 1), chroma(x, y, 2)
			}
		}
	}
	return &pipeline.Frame{
		Format: f, Bytes: b, Sequence: uint64(1000 + n),
		Times: pipeline.Times{ExposureStart: time.Unix(1700000000, 123456789).Add(time.Duration(n) * time.Second / 30)},
	}
}

// group10 writes two pixels of 10-bit 4:2:2 as in RFC 4175 §4.3: Cb0 Y0 Cr0 Y1 from the highest bit down.
func group10(b []byte, y, c [2]byte, low int) {
	var v uint64
	for i, s := range [4]byte{c[0], y[0], c[1], y[1]} {
		v = v<<10 | uint64(s)<<2 | uint64(low+i)&3
	}
	for i := range 5 {
		b[i] = byte(v >> (8 * (4 - i)))
	}
}

// Lines returns the pixels of a raw frame without padding.
func Lines(f *pipeline.Frame) []byte {
	var b []byte
	for y := range f.Format.Height {
		b = append(b, f.Bytes[y*f.Format.Stride:][:f.Format.Pixel.LineBytes(f.Format.Width)]...)
	}
	return b
}

// Packets returns the packets of a train as sent.
func Packets(t testing.TB, tr Train) [][]byte {
	t.Helper()
	var out [][]byte
	total := 0
	for i := range tr.Len() {
		h, p := tr.Packet(i)
		b := append(append([]byte{}, h...), p...)
		total += len(b)
		out = append(out, b)
	}
	if total != tr.Bytes() {
		t.Fatalf("train says %d bytes, packets have %d", tr.Bytes(), total)
	}
	return out
}

// PackReady returns a copy of frame f in packet-ready memory of format ready, with gaps of zeros.
func PackReady(f *pipeline.Frame, ready pipeline.Format) *pipeline.Frame {
	out := &pipeline.Frame{Format: ready, Sequence: f.Sequence, Times: f.Times}
	for pixels := Lines(f); len(pixels) > 0; {
		n := ready.PacketPitch - ready.HeaderGap
		out.Bytes = append(append(out.Bytes, make([]byte, ready.HeaderGap)...), pixels[:n]...)
		pixels = pixels[n:]
	}
	return out
}

// PSNR returns the peak signal-to-noise ratio of two pictures of 8-bit samples, in dB; +Inf if they are equal.
func PSNR(a, b []byte) float64 {
	var sum float64
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		sum += d * d
	}
	if sum == 0 {
		return math.Inf(1)
	}
	return 10 * math.Log10(255*255*float64(len(a))/sum)
}

// PerPacket reports the time per packet, and packets per second, of a benchmark that has sent packets packets per
// iteration.
func PerPacket(b *testing.B, packets int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*packets), "ns/packet")
	b.ReportMetric(float64(b.N*packets)/b.Elapsed().Seconds(), "packets/s")
}
