// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"encoding/binary"
	"errors"
	"unsafe"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/isp"
)

// An arena is a set of device memory allocations that are freed together.
type arena struct {
	device *cudahost.Device
	pieces []*cudahost.DeviceMemory
}

// alloc allocates size bytes on the device and returns their address, or 0 if size is 0.
func (m *arena) alloc(size int) (uintptr, error) {
	if size == 0 {
		return 0, nil
	}
	d, err := m.device.AllocDevice(size)
	if err != nil {
		return 0, err
	}
	m.pieces = append(m.pieces, d)
	return d.Pointer, nil
}

// table copies b to the device and returns the address of the copy, or 0 if b is empty.
func (m *arena) table(b []byte) (uintptr, error) {
	at, err := m.alloc(len(b))
	if err != nil || at == 0 {
		return 0, err
	}
	return at, m.pieces[len(m.pieces)-1].Write(b)
}

// Close frees everything. No work may use it any more.
func (m *arena) Close() error {
	var errs []error
	for _, d := range m.pieces {
		errs = append(errs, d.Close())
	}
	m.pieces = nil
	return errors.Join(errs...)
}

// setTables puts the tables of the recipe into device memory. tone is the address of the tone table, and tones contains
// the address of the table for each output. It sets the addresses of the other tables in a.
func (m *arena) setTables(r *isp.Recipe, a *args) (tone uintptr, tones []uintptr, err error) {
	keep := func(b []byte) uintptr {
		at, e := m.table(b)
		err = errors.Join(err, e)
		return at
	}
	tone = keep(words(r.Tone[:]))
	for i := range r.Outputs {
		if o := &r.Outputs[i]; o.Format.Pixel == pipeline.RGB24 && !needsColors(r) {
			tones = append(tones, keep(codes(r.Tone, &o.RGB)))
		} else {
			tones = append(tones, tone)
		}
	}
	if s := r.Shading; s != nil {
		a.shading, a.rows = keep(gains(s, r.In.Width)), keep(words(s.AtY))
	}
	a.defects = keep(defects(r.Defects))
	return tone, tones, err
}

// words returns v in little-endian order.
func words(v []uint16) []byte {
	b := make([]byte, 0, 2*len(v))
	for _, w := range v {
		b = binary.LittleEndian.AppendUint16(b, w)
	}
	return b
}

// codes returns, for each linear sample, the byte that results from the tone curve and the conversion to R'G'B'.
func codes(tone *[1 << 14]uint16, c *isp.Conversion) []byte {
	b := make([]byte, len(tone))
	for i, v := range tone {
		b[i] = byte((c.C[0]*int32(v) + c.Offset) >> c.Shift)
	}
	return b
}

// gains returns the lines of the grid: first those for even lines of the frame, then those for odd ones.
func gains(s *isp.RecipeShading, width int) []byte {
	var b []byte
	for _, lines := range s.Gains {
		for _, l := range lines {
			b = append(b, words(l)...)
			b = append(b, make([]byte, 2*(pitch(width)-width))...)
		}
	}
	return b
}

// defectSize is the number of bytes of Defect of kernels/args.cu.
const defectSize = 16

// defects returns defects in the layout of Defect of kernels/args.cu.
func defects(list []isp.RecipeDefect) []byte {
	var b []byte
	for _, d := range list {
		for _, v := range []int{d.X, d.Y, int(d.Usable), 0} {
			b = binary.LittleEndian.AppendUint32(b, uint32(v))
		}
	}
	return b
}

// gathered mirrors Statistics of kernels/args.cu.
type gathered struct {
	sum       [isp.ZoneRows][isp.ZoneColumns][3]uint64
	focus     uint64
	count     [isp.ZoneRows][isp.ZoneColumns][3]uint32
	histogram [3][256]uint32
	clipped   [3]uint32
	samples   [3]uint32
}

const gatheredSize = int(unsafe.Sizeof(gathered{}))

// fill converts g to the isp's statistics.
func (g *gathered) fill(s *isp.Statistics) {
	for y := range g.sum {
		for x := range g.sum[y] {
			s.Zones[y][x] = isp.Zone{Sum: g.sum[y][x], Count: g.count[y][x]}
		}
	}
	s.Histogram, s.Clipped, s.Samples, s.Focus = g.histogram, g.clipped, g.samples, g.focus
}
