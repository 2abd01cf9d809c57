// SPDX-License-Identifier: Apache-2.0

package model

import (
	_ "embed"

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

// TestChartSensor returns the configuration of a sensor that replays the test chart.
func TestChartSensor() SensorConfig {
	return SensorConfig{
		Width: TestChartWidth, Height: TestChartHeight,
		Format: fpga.NewFourCC([4]byte{'R', 'G', '1', '0'}),
		Frames: [][]byte{testChart},
		Shift:  2,
	}
}
