// SPDX-License-Identifier: Apache-2.0

package model

import (
	"encoding/binary"
	"time"
)

type exposing struct {
	time time.Duration
	gain uint32 // in 1/256
}

// SetLight changes the light on the scene from the next frame on. The arguments are the amounts of red, green and blue
// light relative to the replayed frames. A monochrome sensor sees green.
func (s *Sensor) SetLight(red, green, blue float64) { s.light.Store(&[3]float64{red, green, blue}) }

// brightness returns how bright red, green and blue are relative to the replayed frames.
func (s *Sensor) brightness(e exposing) [3]float64 {
	b := [3]float64{1, 1, 1}
	if l := s.light.Load(); l != nil {
		b = *l
	}
	for i := range b {
		b[i] *= e.time.Seconds() / s.cfg.Exposure.Seconds() * float64(e.gain) / unityGain
	}
	return b
}

// A picture is a replayed frame with the brightness of an exposure.
type picture struct {
	pixels     []byte // must not be changed
	scaled     []byte // memory for pixels that are not the replayed ones
	replayed   int    // number of the replayed frame in scaled
	brightness [3]float64
}

// An exposer scales the samples of replayed frames by the brightness that follows from exposure, gain and light, with a
// table for each colour.
type exposer struct {
	brightness [3]float64
	tables     [3][]uint16
}

// expose makes p the replayed frame i with all samples scaled, which costs nothing if it is that already. Samples that
// would exceed white become white. Frames of processed pictures (see fpga.FourCC.Sensor) are left unchanged.
func (x *exposer) expose(s *Sensor, e exposing, i int, p *picture) {
	frame, b := s.cfg.Frames[i], s.brightness(e)
	if b == [3]float64{1, 1, 1} || !s.cfg.Format.Sensor() {
		p.pixels = frame
		return
	}
	if p.scaled == nil || p.replayed != i || p.brightness != b {
		if x.tables[0] == nil || b != x.brightness {
			x.setBrightness(s, b)
		}
		p.scaled, p.replayed, p.brightness = append(p.scaled[:0], frame...), i, b
		if s.cfg.Clip > 0 && min(b[0], b[1], b[2]) < 1 {
			restore(s, p.scaled)
		}
		for y := range s.cfg.Height {
			even, odd := s.colors(y)
			x.line(p.scaled[y*s.line:][:s.line], s.bytes, x.tables[even], x.tables[odd])
		}
	}
	p.pixels = p.scaled
}

// setBrightness makes the tables for another brightness.
func (x *exposer) setBrightness(s *Sensor, b [3]float64) {
	x.brightness = b
	white := 1<<s.cfg.Format.Bits() - 1
	size := white + 1
	if s.cfg.Clip > 0 {
		size *= 2 // restore exceeds white
	}
	for c := range x.tables {
		x.tables[c] = make([]uint16, size)
		for v := range x.tables[c] {
			x.tables[c][v] = uint16(min(float64(v)*b[c]+0.5, float64(white)))
		}
	}
}

// restore replaces clipped samples by what a grey surface would have given, up to nearly twice white; see
// SensorConfig.Clip.
func restore(s *Sensor, pixels []byte) {
	var colors [4]int // of two columns of two lines
	colors[0], colors[1] = s.colors(0)
	colors[2], colors[3] = s.colors(1)
	limit := 2<<s.cfg.Format.Bits() - 1
	for y := 0; y+1 < s.cfg.Height; y += 2 {
		up, down := pixels[y*s.line:][:s.line], pixels[(y+1)*s.line:][:s.line]
		for i := 0; i+4 <= len(up); i += 4 {
			at := [4][]byte{up[i:], up[i+2:], down[i:], down[i+2:]}
			var v [4]int
			for k, b := range at {
				v[k] = int(binary.LittleEndian.Uint16(b))
			}
			if max(v[0], v[1], v[2], v[3]) < s.cfg.Clip {
				continue
			}
			grey := 0.0
			for k, c := range colors {
				grey = max(grey, float64(v[k])/s.cfg.Grey[c])
			}
			for k, c := range colors {
				if v[k] >= s.cfg.Clip {
					binary.LittleEndian.PutUint16(at[k], uint16(min(max(v[k], int(grey*s.cfg.Grey[c]+0.5)), limit)))
				}
			}
		}
	}
}

func (x *exposer) line(line []byte, size int, even, odd []uint16) {
	if size == 1 {
		for i := range line {
			line[i] = byte(even[line[i]])
			even, odd = odd, even
		}
		return
	}
	for i := 0; i+1 < len(line); i += 2 {
		v := int(binary.LittleEndian.Uint16(line[i:])) & (len(even) - 1)
		binary.LittleEndian.PutUint16(line[i:], even[v])
		even, odd = odd, even
	}
}

// colors returns the colours of the even and odd samples of a line: 0 red, 1 green, 2 blue.
func (s *Sensor) colors(y int) (even, odd int) {
	order := [4]int{1, 1, 1, 1} // of the first two lines; here monochrome
	switch s.cfg.Format.String() {
	case "RGGB", "RG10", "RG12", "RG14", "RG16":
		order = [4]int{0, 1, 1, 2}
	case "GRBG", "BA10", "BA12", "GR14", "GR16":
		order = [4]int{1, 0, 2, 1}
	case "GBRG", "GB10", "GB12", "GB14", "GB16":
		order = [4]int{1, 2, 0, 1}
	case "BA81", "BG10", "BG12", "BG14", "BYR2":
		order = [4]int{2, 1, 1, 0}
	}
	return order[y%2*2], order[y%2*2+1]
}
