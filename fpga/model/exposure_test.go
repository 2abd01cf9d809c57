// SPDX-License-Identifier: Apache-2.0

package model

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/tegracast/tegracast/fpga"
)

// Values written while SEQUENCE reads n apply from frame n+1 on, in the picture and in the trailer.
func TestExposureFollowsRegisters(t *testing.T) {
	const width, height = 128, 16
	c := newCameraHost(t, smallSensor(t, width, height), virtual(), 4, 512)
	c.start(logAll)
	c.credit(4)
	if err := c.cam.Start(); err != nil {
		t.Fatal(err)
	}
	from, err := c.cam.SetExposure(6*time.Millisecond, 2) // 3 times as bright
	if err != nil || from != 1 {
		t.Fatalf("from frame %d, %v", from, err)
	}
	c.clock.Advance(4 * time.Millisecond)
	c.counters(fpga.CameraCounters{Sequence: 1, Delivered: 1})
	c.sensor.SetLight(2, 1, 0.5)
	if from, err = c.cam.SetExposure(1*time.Millisecond, 1); err != nil || from != 2 {
		t.Fatalf("from frame %d, %v", from, err)
	}
	c.clock.Advance(12 * time.Millisecond)
	c.counters(fpga.CameraCounters{Sequence: 2, Delivered: 2})
	c.clock.Advance(10 * time.Millisecond)
	c.counters(fpga.CameraCounters{Sequence: 3, Delivered: 3})
	plain := make([]byte, c.sensor.FrameBytes())
	for n, factors := range [][4]float64{{1, 1, 1, 1}, {6, 3, 3, 1.5}, {0.5, 0.25, 0.25, 0.125}} {
		var got []byte
		for _, s := range c.slots[n].segments {
			got = append(got, c.bytes(s.dst, int(s.length))...)
		}
		trailer, err := fpga.ParseTrailer(c.bytes(c.slots[n].trailer, fpga.TrailerSize))
		if want := []uint64{4e6, 6e6, 1e6}[n]; err != nil || trailer.End-trailer.Start != want {
			t.Errorf("frame %d: exposed for %d ns, %v", n, trailer.End-trailer.Start, err)
		}
		if seq, err := ReadStamp(got, c.sensor.Config().Format); err != nil || seq != uint64(n) {
			t.Errorf("frame %d has the stamp %d, %v", n, seq, err)
		}
		c.sensor.Frame(uint64(n), plain)
		for i := StampSamples; i < width*height; i++ {
			f := factors[i/width%2*2+i%2]
			want := min(math.Floor(float64(binary.LittleEndian.Uint16(plain[2*i:]))*f+0.5), 1023)
			if v := binary.LittleEndian.Uint16(got[2*i:]); float64(v) != want {
				t.Fatalf("frame %d, sample %d is %d, want %v", n, i, v, want)
			}
		}
	}
	for name, err := range map[string]error{
		"longer than the period": second(c.cam.SetExposure(11*time.Millisecond, 0)),
		"negative gain":          second(c.cam.SetExposure(0, -1)),
	} {
		if err == nil {
			t.Errorf("%s is taken", name)
		}
	}
	if e, g, err := c.cam.Exposure(); e != time.Millisecond || g != 1 || err != nil {
		t.Errorf("exposure %v, gain %v, %v", e, g, err)
	}
}

// A clipped sample in less light must be what a grey surface gives, also if all four are clipped, and no darker than it
// was; what is not clipped must only be scaled.
func TestClippedSamplesStayGrey(t *testing.T) {
	quads := []struct{ samples, want [4]int }{
		{[4]int{500, 1020, 1020, 700}, [4]int{250, 510, 510, 350}},     // green, which may be no brighter
		{[4]int{700, 1020, 1020, 1020}, [4]int{350, 700, 700, 525}},    // green and blue, by red
		{[4]int{1020, 1020, 1020, 1020}, [4]int{510, 1020, 1020, 765}}, // all
		{[4]int{1020, 600, 1020, 100}, [4]int{510, 300, 1020, 50}},
		{[4]int{1019, 900, 900, 900}, [4]int{510, 450, 450, 450}},
	}
	raw := make([]byte, 2*128*4)
	put := func(quad int, v [4]int) {
		for k, v := range v {
			binary.LittleEndian.PutUint16(raw[2*((2+k/2)*128+2*quad+k%2):], uint16(v))
		}
	}
	for i, q := range quads {
		put(i, q.samples)
	}
	s, err := NewSensor(SensorConfig{
		Width: 128, Height: 4, Format: fpga.NewFourCC([4]byte{'R', 'G', '1', '0'}), Frames: [][]byte{raw},
		Exposure: 10 * time.Millisecond, Clip: 1020, Grey: [3]float64{0.5, 1, 0.75},
	})
	if err != nil {
		t.Fatal(err)
	}
	var x exposer
	var p picture
	for n, half := range []int{1, 2, 2, 4, 2, 1, 2} { // also what is kept
		got := make([]byte, len(raw))
		factor := 10 * time.Millisecond / time.Duration(half)
		x.expose(s, exposing{factor, unityGain}, 0, &p)
		s.readFrame(1, p.pixels, 0, got)
		for i, q := range quads {
			want := q.samples
			switch {
			case half == 2:
				want = q.want
			case half == 4 && i == 4: // nothing is clipped
				want = [4]int{255, 225, 225, 225}
			case half == 4:
				continue
			}
			for k := range want {
				if v := int(binary.LittleEndian.Uint16(got[2*((2+k/2)*128+2*i+k%2):])); v != want[k] {
					t.Errorf("frame %d, quad %d at %v: sample %d is %d, want %d", n, i, factor, k, v, want[k])
				}
			}
		}
		if n, err := ReadStamp(got, s.Config().Format); n != 1 || err != nil {
			t.Errorf("stamp %d, %v", n, err)
		}
	}
}

func second(_ uint64, err error) error { return err }

// Every mosaic in the document's table must get its colours.
func TestSensorColors(t *testing.T) {
	for _, row := range document(t) {
		order, known := map[string][4]int{
			"RG / GB": {0, 1, 1, 2}, "GR / BG": {1, 0, 2, 1}, "GB / RG": {1, 2, 0, 1}, "BG / GR": {2, 1, 1, 0}, "monochrome": {1, 1, 1, 1},
		}[row[0]]
		if !known {
			continue
		}
		for _, cell := range row[1:] {
			s := Sensor{cfg: SensorConfig{Format: fpga.NewFourCC([4]byte([]byte(cell[1:5])))}}
			a, b := s.colors(0)
			c, d := s.colors(1)
			if got := [4]int{a, b, c, d}; got != order {
				t.Errorf("%s: %v, want %v", cell, got, order)
			}
		}
	}
}
