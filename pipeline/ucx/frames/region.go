// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/crc"
)

// ErrRegion means that a stream's frames do not allow this region.
var ErrRegion = errors.New("impossible region")

// A Region is a rectangle of a frame, in pixels from the top left corner. The zero Region stands for the whole frame.
type Region struct{ X, Y, Width, Height int }

func (g Region) String() string {
	if g == (Region{}) {
		return "whole"
	}
	return fmt.Sprintf("%dx%d+%d+%d", g.Width, g.Height, g.X, g.Y)
}

// UnmarshalText implements encoding.TextUnmarshaler. It accepts text such as "640x480+0+120".
func (g *Region) UnmarshalText(text []byte) error {
	var n [4]int
	words := strings.FieldsFunc(string(text), func(c rune) bool { return c == 'x' || c == '+' })
	bad := len(words) != len(n)
	for i := 0; i < len(n) && !bad; i++ {
		var err error
		n[i], err = strconv.Atoi(words[i])
		bad = err != nil || n[i] < 0
	}
	r := Region{Width: n[0], Height: n[1], X: n[2], Y: n[3]}
	if bad || r.String() != string(text) {
		return fmt.Errorf("%w %q: write WIDTHxHEIGHT+X+Y, such as 640x480+0+120", ErrRegion, text)
	}
	*g = r
	return nil
}

// of returns the format of the region in frames of format f, or an error that wraps ErrRegion.
func (g Region) of(f pipeline.Format) (pipeline.Format, error) {
	if g == (Region{}) {
		return f, nil
	}
	bad := func(why string) (pipeline.Format, error) {
		return f, fmt.Errorf("%w %s of %s frames of %dx%d: %s", ErrRegion, g, f.Pixel, f.Width, f.Height, why)
	}
	pixels, lines := f.Pixel.Group().Pixels, 1
	if s, sensor := f.Pixel.Samples(); sensor && s.Mosaic != pipeline.Mono {
		pixels, lines = max(pixels, 2), 2
	}
	switch {
	case f.Pixel == pipeline.I420 || f.Pixel == pipeline.NV12:
		return bad("planes have no regions: take the whole frame")
	case g.Width > f.Width-g.X || g.Height > f.Height-g.Y:
		return bad("it is not inside the frame")
	case g.X%pixels != 0 || g.Width%pixels != 0 || g.Y%lines != 0 || g.Height%lines != 0:
		return bad(fmt.Sprintf("x and width must be multiples of %d, y and height of %d", pixels, lines))
	}
	f.Width, f.Height, f.Stride = g.Width, g.Height, f.Pixel.LineBytes(g.Width)
	if err := f.Validate(); err != nil {
		return bad(err.Error())
	}
	return f, nil
}

// parts appends the pieces of pixels that make up the region, in order.
func (g Region) parts(list [][]byte, f pipeline.Format, pixels []byte) [][]byte {
	pixels = pixels[:f.Size()]
	if g == (Region{}) {
		return append(list, pixels)
	}
	line, begin := f.Pixel.LineBytes(g.Width), g.Y*f.Stride+f.Pixel.LineBytes(g.X)
	if line == f.Stride {
		return append(list, pixels[begin:][:line*g.Height])
	}
	for y := range g.Height {
		list = append(list, pixels[begin+y*f.Stride:][:line])
	}
	return list
}

// checksum returns the CRC-32C of the concatenated parts.
func checksum(parts [][]byte) uint32 {
	sum := uint32(0)
	for _, p := range parts {
		sum = crc.Castagnoli(sum, p)
	}
	return sum
}
