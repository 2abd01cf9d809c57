// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"fmt"
	"strings"
)

// Build describes the program to which the pages belong.
type Build struct {
	Version string
	Day     string // such as 2026-11-23; may be empty
}

// roff is a page under construction.
type roff struct {
	strings.Builder
	fresh bool // a section, and with it a paragraph, has just begun
}

// head writes the start of a page.
func (r *roff) head(name string, section int, b Build) {
	fmt.Fprintf(r, ".TH %s %d \"%s\" \"tegracast %s\"\n", strings.ToUpper(name), section, b.Day, b.Version)
}

func (r *roff) section(name string) {
	fmt.Fprintf(r, ".SH %s\n", escape(strings.ToUpper(name)))
	r.fresh = true
}

func (r *roff) subsection(name string) {
	fmt.Fprintf(r, ".SS \"%s\"\n", escape(name))
	r.fresh = true
}

// paragraph starts a paragraph.
func (r *roff) paragraph() {
	if !r.fresh {
		r.WriteString(".PP\n")
	}
	r.fresh = false
}

// item writes an entry of a list: the term in bold, its value in italics, and the text.
func (r *roff) item(term, value, text string) {
	if value != "" {
		value = " \\fI" + escape(value) + "\\fR"
	}
	fmt.Fprintf(r, ".TP\n%s\n%s\n", short("\\fB"+escape(term)+"\\fR"+value), short(escape(text)))
	r.fresh = false
}

// lines writes a preformatted text.
func (r *roff) lines(text string) {
	r.paragraph()
	fmt.Fprintf(r, ".nf\n%s\n.fi\n", short(escape(strings.TrimRight(text, "\n"))))
}

// paragraphs fills paragraphs whose lines all begin at the margin, and writes the others as preformatted text.
func (r *roff) paragraphs(text string) {
	for p := range strings.SplitSeq(strings.Trim(text, "\n"), "\n\n") {
		if strings.HasPrefix(p, " ") || strings.Contains(p, "\n ") {
			r.lines(p)
			continue
		}
		r.paragraph()
		fmt.Fprintf(r, "%s\n", short(escape(p)))
	}
}

// short breaks long source lines of a page at spaces, without a visible effect.
func short(s string) string {
	const longest = 79
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		var kept string
		for len(l) > longest {
			at := strings.LastIndexByte(l[:longest], ' ')
			if strings.TrimSpace(l[:max(0, at)]) == "" {
				break
			}
			kept, l = kept+l[:at+1]+"\\\n", l[at+1:]
		}
		lines[i] = kept + l
	}
	return strings.Join(lines, "\n")
}

// escape returns text that man(7) shows unchanged.
func escape(s string) string {
	lines := strings.Split(strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s), "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
