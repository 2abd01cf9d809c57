// SPDX-License-Identifier: Apache-2.0

package preprocess

import (
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/infer/tensor"
)

// colours has, for each of the tensor's channels, the constants k0 to k3 of the definition, and low and high. Each is there
// eight times, for vectors. In mixed, which is 0 or 1, 0 is for channels that depend on the sample of the same number alone.
type colours struct {
	factor [3][4][8]float32
	bounds [3][2][8]float32
	mixed  uint8
}

// newColours returns the constants, and the values of the fill.
func newColours(c *Config) (k colours, fill [3]float32, err error) {
	rows := matrix(c.Format)
	switch {
	case c.Channels == 1:
		rows[0] = luma(c.Format)
	case c.BGR && c.ycc():
		rows[0], rows[2] = rows[2], rows[0]
	}
	for i := range c.Channels {
		mean, scale := c.Mean[i], c.Scale[i]
		if scale == 0 {
			return k, fill, refuse("the scale of channel %d is 0, which makes every value the same: 1 changes nothing", i)
		}
		low, high := -mean*scale, (255-mean)*scale
		value := func(sample float64) float64 { return (sample - mean) * scale }
		most := float64(maxHalf)
		if c.Type != tensor.Float16 {
			most = 1e30
		}
		if !(max(low, high) <= most && min(low, high) >= -most) {
			return k, fill, refuse("channel %d: mean %v and scale %v make values from %v to %v, which %s does not have", i, mean, scale, low, high, c.Type)
		}
		low, high = min(low, high), max(low, high)
		if c.Type == tensor.Uint8 {
			low, high = min(max(low, 0), 255), min(max(high, 0), 255)
		}
		row := rows[i]
		spread(&k.factor[i][3], value(row[3]))
		for j := range 3 {
			if j != i && row[j] != 0 {
				k.mixed = 1
			}
			spread(&k.factor[i][j], row[j]*scale/one)
		}
		spread(&k.bounds[i][0], low)
		spread(&k.bounds[i][1], high)
		fill[i] = min(max(float32(value(c.Fill))+0, k.bounds[i][0][0]), k.bounds[i][1][0])
	}
	return k, fill, nil
}

// spread sets all elements to v. Zero becomes positive, so that no sum is -0, which vector instructions order differently.
func spread(to *[8]float32, v float64) {
	for i := range to {
		to[i] = float32(v) + 0
	}
}

// matrix returns the conversion of a format's samples to R'G'B' from 0 to 255, or of those of R'G'B' in any order to the same
// range: for each the factors of the three samples, and what is added.
func matrix(f pipeline.Format) [3][4]float64 {
	black, y, c := f.Color.Range()
	y, c = 255/y, 255/c
	switch f.Pixel {
	case pipeline.Grey, pipeline.RGB24:
		return [3][4]float64{{y, 0, 0, -black * y}, {0, y, 0, -black * y}, {0, 0, y, -black * y}}
	}
	red, blue := f.Color.Luma()
	green := 1 - red - blue
	row := func(cb, cr float64) [4]float64 { return [4]float64{y, cb * c, cr * c, -black*y - 128*c*(cb+cr)} }
	return [3][4]float64{
		row(0, 2*(1-red)),
		row(-2*(1-blue)*blue/green, -2*(1-red)*red/green),
		row(2*(1-blue), 0),
	}
}

// luma returns the conversion to luma from 0 to 255.
func luma(f pipeline.Format) [4]float64 {
	black, y, _ := f.Color.Range()
	if y = 255 / y; f.Pixel != pipeline.RGB24 {
		return [4]float64{y, 0, 0, -black * y}
	}
	red, blue := f.Color.Luma()
	return [4]float64{red * y, (1 - red - blue) * y, blue * y, -black * y}
}
