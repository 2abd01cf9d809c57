// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/tegracast/tegracast/pipeline/printable"
)

// Progress shows in a line of a terminal how much of a task is done. The line is the last one, and does not end.
type Progress struct {
	out   io.Writer
	width func() int
	name  string
	next  time.Time // time from which the line may be written again
	drawn int       // number of characters of the line on the terminal
}

// NewProgress returns a Progress for a task, or one that shows nothing if w is not a terminal.
func NewProgress(w io.Writer, name string) *Progress {
	p := &Progress{out: io.Discard, name: name, next: time.Now().Add(time.Second), width: func() int { return 80 }}
	if f, is := w.(*os.File); is && Is(f) {
		p.out, p.width = w, func() int {
			width, _, err := term.GetSize(int(f.Fd()))
			if err != nil || width <= 0 {
				return 80
			}
			return width
		}
	}
	return p
}

// Show shows the part of the task that is done, from 0 to 1, after the first second and at most once a second.
func (p *Progress) Show(part float64) {
	if now := time.Now(); now.After(p.next) {
		p.next = now.Add(time.Second)
		p.draw(fmt.Sprintf("%3.0f %%  %s", 100*part, printable.Text(p.name)))
	}
}

// End removes the line.
func (p *Progress) End() {
	if p.drawn > 0 {
		p.draw("")
		fmt.Fprint(p.out, "\r")
	}
}

// draw replaces the line.
func (p *Progress) draw(line string) {
	line = cut(line, p.width())
	n := utf8.RuneCountInString(line)
	fmt.Fprintf(p.out, "\r%s%s", line, strings.Repeat(" ", max(p.drawn-n, 0)))
	p.drawn = n
}
