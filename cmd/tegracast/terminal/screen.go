// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/tegracast/tegracast/pipeline/printable"
)

// A Screen is a terminal with a block of lines at the bottom. What is written to it scrolls above the block. Its methods
// may be called concurrently.
type Screen struct {
	out    io.Writer
	size   func() (width, height int)
	colour bool

	mu    sync.Mutex
	block []Line
	drawn []int  // number of characters of each line of the block on the terminal
	rest  []byte // an unfinished line
}

// A Line is a line of the block.
type Line struct {
	Text  string
	Bad   bool // it reports a loss or a failure, and is red if there are colours
	Whole bool // it is not cut at the terminal's width, so that it can be copied
}

// On returns a screen if out and err are both terminals and TERM names one that can move its cursor, else nil.
func On(out, err io.Writer) *Screen {
	f, ok := out.(*os.File)
	g, also := err.(*os.File)
	kind := os.Getenv("TERM")
	if !ok || !also || !term.IsTerminal(int(f.Fd())) || !term.IsTerminal(int(g.Fd())) || kind == "" || kind == "dumb" {
		return nil
	}
	return &Screen{out: f, colour: os.Getenv("NO_COLOR") == "", size: func() (int, int) {
		w, h, err := term.GetSize(int(f.Fd()))
		if err != nil || w <= 0 || h <= 0 {
			return 80, 24
		}
		return w, h
	}}
}

// Fd returns the terminal's file descriptor.
func (s *Screen) Fd() uintptr { return s.out.(*os.File).Fd() }

// Write writes above the block. It holds back an unfinished line until its end.
func (s *Screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest = append(s.rest, p...)
	end := bytes.LastIndexByte(s.rest, '\n') + 1
	if end == 0 {
		return len(p), nil
	}
	err := s.draw(s.rest[:end])
	s.rest = append(s.rest[:0], s.rest[end:]...)
	return len(p), err
}

// Show sets the block's lines. Without lines there is no block.
func (s *Screen) Show(block []Line) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.block = block
	return s.draw(nil)
}

// End removes the block, and writes a held-back line.
func (s *Screen) End() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.block = nil
	text := s.rest
	s.rest = nil
	return s.draw(text)
}

// draw removes the block, writes a text, and writes the block again, in a single write.
func (s *Screen) draw(text []byte) error {
	var b bytes.Buffer
	width, height := s.size()
	above := 0 // a terminal reflows its lines when its width changes
	for _, n := range s.drawn {
		above += rows(n, width)
	}
	if above > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r\x1b[J", above)
	}
	b.Write(text)
	s.drawn = s.drawn[:0]
	used := 0
	for i, l := range s.block {
		text := printable.Text(l.Text)
		if !l.Whole {
			text = cut(text, width)
		}
		n := utf8.RuneCountInString(text)
		used += rows(n, width)
		if used > height-2 && i < len(s.block)-1 || used > height-1 {
			text = fmt.Sprintf("… %d lines more\n", len(s.block)-i)
			b.WriteString(text)
			s.drawn = append(s.drawn, utf8.RuneCountInString(text)-1)
			break
		}
		s.drawn = append(s.drawn, n)
		if l.Bad && s.colour {
			text = "\x1b[31m" + text + "\x1b[0m"
		}
		b.WriteString(text + "\n")
	}
	_, err := s.out.Write(b.Bytes())
	return err
}

// rows returns the number of terminal lines that a line of n characters occupies.
func rows(n, width int) int { return max(1, (n+width-1)/width) }

// cut shortens a line to a terminal's width, without the last column, after which some terminals begin a new line.
func cut(line string, width int) string {
	if utf8.RuneCountInString(line) < width {
		return line
	}
	r := []rune(line)
	return strings.TrimRight(string(r[:max(width-2, 0)]), " ") + "…"
}
