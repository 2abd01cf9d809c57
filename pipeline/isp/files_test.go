// SPDX-License-Identifier: Apache-2.0

package isp

import (
	"errors"
	"image"
	"slices"
	"strings"
	"testing"
)

const grid = "# 2x2\n2 2\nred 1 1.5 2 2.5 green_red 1 1 1 1\ngreen_blue 1 1 1 1\nblue\n 7.9 1 1\n 3 # last\n"

func TestParseDefects(t *testing.T) {
	got, err := ParseDefects(strings.NewReader("# hot\n12 7 # the bright one\n\n0 32767 5\n6"))
	if want := []image.Point{{12, 7}, {0, 32767}, {5, 6}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for text, want := range map[string]string{
		"1 2\n3":                       "line 2: the file ends where y should be",
		"1 2\n3 -1":                    `line 2: y is "-1": must be a whole number from 0 to 32767`,
		"a":                            `line 1: x is "a"`,
		strings.Repeat("x", 1<<17):     "line 1: longer than 65535 bytes: break it into several",
		strings.Repeat("1 1\n", 1<<20): "more than 524288 defects",
	} {
		if _, err := ParseDefects(strings.NewReader(text)); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
	}
}

func TestParseShading(t *testing.T) {
	s, err := ParseShading(strings.NewReader(grid))
	if err != nil {
		t.Fatal(err)
	}
	if s.Columns != 2 || s.Rows != 2 || !slices.Equal(s.Gains[R], []float64{1, 1.5, 2, 2.5}) || !slices.Equal(s.Gains[B], []float64{7.9, 1, 1, 3}) {
		t.Errorf("%+v", s)
	}
	for replaced, c := range map[string][2]string{
		"2 2\nred":    {"1 2\nred", `line 2: the number of columns is "1": must be a whole number from 2 to 64`},
		"blue\n":      {"red\n", "line 5: red where blue and its 4 gains should be"},
		"7.9":         {"8", `line 6: blue gain "8"`},
		"2.5":         {"NaN", `line 3: red gain "NaN"`},
		" 3 # last\n": {"", "line 6: the file ends in the gains of blue"},
		"# last":      {"4", `line 7: "4" after the last gain`},
	} {
		text := strings.Replace(grid, replaced, c[0], 1)
		if _, err := ParseShading(strings.NewReader(text)); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%q: %v, want %q", text, err, c[1])
		}
	}
}

// FuzzFiles checks that a file that can be read makes a valid configuration.
func FuzzFiles(f *testing.F) {
	f.Add(grid)
	f.Add("1 2\n3 4 # x\n")
	f.Fuzz(func(t *testing.T, text string) {
		var c Config
		var err error
		if c.Defects.Pixels, err = ParseDefects(strings.NewReader(text)); err != nil && !errors.Is(err, ErrConfig) {
			t.Errorf("refused without a reason: %v", err)
		}
		if c.Shading, err = ParseShading(strings.NewReader(text)); err != nil && !errors.Is(err, ErrConfig) {
			t.Errorf("refused without a reason: %v", err)
		}
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
	})
}
