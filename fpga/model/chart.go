// SPDX-License-Identifier: Apache-2.0

package model

import (
	_ "embed"
	"sync"

	"github.com/tegracast/tegracast/fpga"
)

// Geometry of the test chart in samples.
const (
	TestChartWidth  = 1920
	TestChartHeight = 1080
)

// testChart is a real sensor's capture of a test chart: RGGB, 10 bits in little-endian 16-bit words, TestChartWidth ×
// TestChartHeight samples (testdata/README.md gives the source).
//
//go:embed testdata/testchart-1920x1080-rggb10le.raw
var testChart []byte

// upright returns the test chart turned by half a turn, because it was captured upside down. The colour order stays: the
// last line and column are left out, and the second ones are mirrored at the first.
var upright = sync.OnceValue(func() []byte {
	mirrored := func(i int) int { return max(i, -i) }
	b := make([]byte, 0, len(testChart))
	for y := range TestChartHeight {
		line := testChart[2*TestChartWidth*mirrored(TestChartHeight-2-y):]
		for x := range TestChartWidth {
			b = append(b, line[2*mirrored(TestChartWidth-2-x):][:2]...)
		}
	}
	return b
})

// TestChartSensor returns the configuration of a sensor that replays the test chart, upright.
func TestChartSensor() SensorConfig {
	return SensorConfig{
		Width: TestChartWidth, Height: TestChartHeight,
		Format: fpga.NewFourCC([4]byte{'R', 'G', '1', '0'}),
		Frames: [][]byte{upright()},
		Shift:  2,
		Clip:   1020,
		Grey:   [3]float64{1 / 1.72, 1, 1 / 1.1},
	}
}
