// SPDX-License-Identifier: Apache-2.0

package isp

import (
	"bufio"
	"errors"
	"fmt"
	"image"
	"io"
	"slices"
	"strconv"
	"strings"
)

// The results of a camera's calibration are stored in text files of words separated by blanks; # starts a comment.

// maxDefects is the maximum number of known defects in a file: about one in 64 samples of 8K.
const maxDefects = 1 << 19

// A textWords reads a text file word by word and keeps track of the line.
type textWords struct {
	lines *bufio.Scanner
	line  int
	rest  []string
}

func newTextWords(r io.Reader) *textWords { return &textWords{lines: bufio.NewScanner(r)} }

// next returns the next word, or false at the end or after an error of reading.
func (w *textWords) next() (string, bool) {
	for len(w.rest) == 0 {
		if !w.lines.Scan() {
			return "", false
		}
		w.line++
		text, _, _ := strings.Cut(w.lines.Text(), "#")
		w.rest = strings.Fields(text)
	}
	word := w.rest[0]
	w.rest = w.rest[1:]
	return word, true
}

// refuse returns an error that names the line of the last word, or, if reading has failed, the error of reading.
func (w *textWords) refuse(format string, a ...any) error {
	switch err := w.lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("%w: line %d: longer than %d bytes: break it into several", ErrConfig, w.line+1, bufio.MaxScanTokenSize-1)
	case err != nil:
		return fmt.Errorf("%w: line %d: %w", ErrConfig, w.line+1, err)
	}
	return fmt.Errorf("%w: line %d: %s", ErrConfig, max(w.line, 1), fmt.Sprintf(format, a...))
}

// number returns the next word as an integer. It returns an error if that is not from low to high, both inclusive.
func (w *textWords) number(what string, low, high int) (int, error) {
	word, ok := w.next()
	if !ok {
		return 0, w.refuse("the file ends where %s should be", what)
	}
	n, err := strconv.Atoi(word)
	if err != nil || n < low || n > high {
		return 0, w.refuse("%s is %q: must be a whole number from %d to %d", what, word, low, high)
	}
	return n, nil
}

// ParseDefects reads a list of defective pixels: x and y of each, counted from 0 at the upper left. Errors wrap
// ErrConfig and name the line.
func ParseDefects(r io.Reader) ([]image.Point, error) {
	w := newTextWords(r)
	var pixels []image.Point
	for {
		word, ok := w.next()
		if !ok {
			break
		}
		w.rest = slices.Insert(w.rest, 0, word)
		x, err := w.number("x", 0, 1<<15-1)
		if err != nil {
			return nil, err
		}
		y, err := w.number("y", 0, 1<<15-1)
		if err != nil {
			return nil, err
		}
		if pixels = append(pixels, image.Pt(x, y)); len(pixels) > maxDefects {
			return nil, w.refuse("more than %d defects: no sensor has so many", maxDefects)
		}
	}
	if err := w.lines.Err(); err != nil {
		return nil, w.refuse("%v", err)
	}
	return pixels, nil
}

// ParseShading reads a grid of gains: the numbers of columns and rows, then for each of the channels red, green_red,
// green_blue and blue its name and its gains, line by line from the top. Errors wrap ErrConfig and name the line.
func ParseShading(r io.Reader) (*Shading, error) {
	w := newTextWords(r)
	s := &Shading{}
	var err error
	if s.Columns, err = w.number("the number of columns", 2, maxGrid); err != nil {
		return nil, err
	}
	if s.Rows, err = w.number("the number of rows", 2, maxGrid); err != nil {
		return nil, err
	}
	for i, name := range [4]string{"red", "green_red", "green_blue", "blue"} {
		if word, ok := w.next(); word != name {
			if !ok {
				word = "the end"
			}
			return nil, w.refuse("%s where %s and its %d gains should be", word, name, s.Columns*s.Rows)
		}
		for range s.Columns * s.Rows {
			word, ok := w.next()
			if !ok {
				return nil, w.refuse("the file ends in the gains of %s: %d are wanted", name, s.Columns*s.Rows)
			}
			g, err := strconv.ParseFloat(word, 64)
			if err != nil || !(g >= 1.0/gainOne && g <= maxShading-1.0/gainOne) {
				return nil, w.refuse("%s gain %q: must be a number from 1/%d to below %d", name, word, gainOne, maxShading)
			}
			s.Gains[i] = append(s.Gains[i], g)
		}
	}
	if word, ok := w.next(); ok {
		return nil, w.refuse("%q after the last gain", word)
	}
	if err := w.lines.Err(); err != nil {
		return nil, w.refuse("%v", err)
	}
	return s, nil
}
