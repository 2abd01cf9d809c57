// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"github.com/tegracast/tegracast/fpga"
)

func smallSensor(t testing.TB, width, height int) *Sensor {
	t.Helper()
	raw := make([]byte, width*height*2)
	for i := 0; i < len(raw); i += 2 {
		binary.LittleEndian.PutUint16(raw[i:], uint16(1+i*5%1022))
	}
	s, err := NewSensor(SensorConfig{
		Width: width, Height: height, Format: fpga.NewFourCC([4]byte{'R', 'G', '1', '0'}),
		Frames: [][]byte{raw}, Shift: 6, Period: 10 * time.Millisecond, Exposure: 4 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTestChart(t *testing.T) {
	sum := md5.Sum(testChart)
	if got := hex.EncodeToString(sum[:]); got != "d7aa4f2fd2556c0bf15fe0d06381a007" {
		t.Errorf("MD5 %s", got)
	}
	if _, err := NewSensor(TestChartSensor()); err != nil {
		t.Error(err)
	}
}

// Checks frames sample by sample against the documented rule.
func TestSensorFrame(t *testing.T) {
	s := smallSensor(t, 72, 8)
	raw := s.Config().Frames[0]
	dst := make([]byte, s.FrameBytes())
	sample := func(b []byte, x, y int) uint16 { return binary.LittleEndian.Uint16(b[(y*72+x)*2:]) }
	for _, n := range []uint64{0, 1, 2, 11, 12, 1000, 1<<63 + 12345, ^uint64(0)} {
		s.Frame(n, dst)
		shift := int(n % 72 * 6 % 72)
		for y := range 8 {
			for x := range 72 {
				want := sample(raw, (x+shift)%72, y)
				if y == 0 && x < 64 {
					want = uint16(n >> x & 1 * 1023)
				}
				if got := sample(dst, x, y); got != want {
					t.Fatalf("frame %d, sample %d,%d is %d, want %d", n, x, y, got, want)
				}
			}
		}
		if got, err := ReadStamp(dst, s.Config().Format); err != nil || got != n {
			t.Errorf("stamp of frame %d reads %d, %v", n, got, err)
		}
	}
	s.Frame(5, dst)
	binary.LittleEndian.PutUint16(dst[6:], 512)
	if _, err := ReadStamp(dst, s.Config().Format); !errors.Is(err, ErrStamp) {
		t.Errorf("damaged stamp: %v", err)
	}
	if _, err := ReadStamp(dst[:100], s.Config().Format); !errors.Is(err, ErrStamp) {
		t.Errorf("short frame: %v", err)
	}
}

func TestSensorEightBits(t *testing.T) {
	s, err := NewSensor(SensorConfig{
		Width: 64, Height: 2, Format: fpga.NewFourCC([4]byte{'R', 'G', 'G', 'B'}),
		Frames: [][]byte{testPattern(128), make([]byte, 128)},
	})
	if err != nil {
		t.Fatal(err)
	}
	dst := make([]byte, 128)
	s.Frame(2, dst)
	if dst[0] != 0 || dst[1] != 255 || dst[64] != testPattern(128)[64] {
		t.Errorf("%v", dst)
	}
	s.Frame(3, dst)
	if dst[64] != 0 {
		t.Error("frames are not replayed in turn")
	}
}

func TestSensorErrors(t *testing.T) {
	good := SensorConfig{
		Width: 64, Height: 2, Format: fpga.NewFourCC([4]byte{'B', 'G', '1', '0'}), Frames: [][]byte{make([]byte, 256)},
	}
	for name, change := range map[string]func(*SensorConfig){
		"format":   func(c *SensorConfig) { c.Format = 0 },
		"narrow":   func(c *SensorConfig) { c.Width = 62 },
		"no lines": func(c *SensorConfig) { c.Height = 0 },
		"beats":    func(c *SensorConfig) { c.Width, c.Height, c.Frames = 66, 1, [][]byte{make([]byte, 132)} },
		"empty":    func(c *SensorConfig) { c.Frames = nil },
		"short":    func(c *SensorConfig) { c.Frames = [][]byte{make([]byte, 255)} },
		"odd":      func(c *SensorConfig) { c.Shift = 3 },
		"negative": func(c *SensorConfig) { c.Shift = -2 },
		"fast":     func(c *SensorConfig) { c.Period = 1 },
		"slow":     func(c *SensorConfig) { c.Period = 5 * time.Second },
		"exposure": func(c *SensorConfig) { c.Exposure = time.Second },
	} {
		cfg := good
		change(&cfg)
		if _, err := NewSensor(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestCrop(t *testing.T) {
	chart := TestChartSensor()
	c, err := chart.Crop(320, 240)
	if err != nil {
		t.Fatal(err)
	}
	if c.Width != 320 || c.Height != 240 || len(c.Frames) != 1 || len(c.Frames[0]) != 2*320*240 {
		t.Fatalf("%dx%d, %d bytes", c.Width, c.Height, len(c.Frames[0]))
	}
	// The chart is turned by half a turn: what is right of sample 318 and below line 238 was at the borders of the capture.
	for _, at := range []struct{ x, y, fromX, fromY int }{
		{0, 0, 318, 238}, {318, 0, 0, 238}, {0, 238, 318, 0}, {318, 238, 0, 0}, {319, 239, 1, 1}, {160, 77, 158, 161},
	} {
		got, want := c.Frames[0][2*(at.y*320+at.x):][:2], testChart[2*(at.fromY*TestChartWidth+at.fromX):][:2]
		if !bytes.Equal(got, want) {
			t.Errorf("sample %d,%d is %x, want %x", at.x, at.y, got, want)
		}
	}
	if c, err = chart.Crop(321, 239); err != nil || !bytes.Equal(c.Frames[0][:2], testChart[2*(238*TestChartWidth+320):][:2]) {
		t.Errorf("an odd size begins with another colour, or elsewhere: %v", err)
	}
	for _, size := range [][2]int{{0, 1}, {1, 0}, {1921, 1}, {1, 1081}, {-1, 5}} {
		if _, err := chart.Crop(size[0], size[1]); err == nil {
			t.Errorf("%v was cut out", size)
		}
	}
}
