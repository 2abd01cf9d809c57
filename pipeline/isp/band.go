// SPDX-License-Identifier: Apache-2.0

package isp

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tegracast/tegracast/pipeline"
)

// bandLines is the usual height of a band. It is a multiple of four so that no line of the quarter size is split. The
// lines of neighbouring bands that a band needs are computed again: at most eight lines of linear samples, and more in
// the steps before them if defects are repaired.
const bandLines = 64

// shortLines is the height of a band on the short way (see columns.go), which computes only two lines again. With so
// many bands no worker has to wait long for another's last band.
const shortLines = 16

// sliceLines is the maximum height of a band of a filling frame, whose lines are handed on band by band. Bands end
// haloLines before a multiple of sliceLines, because a band needs lines below its end: as soon as a slice has arrived,
// a band can be finished. If defects are repaired, a band may need more lines below, and then waits for the next slice.
const (
	sliceLines = 16
	haloLines  = 4
)

// A pass is one call of Process. The workers take bands from it until none are left.
type pass struct {
	ctx       context.Context
	plan      *plan
	in        *pipeline.Frame
	outs      []*pipeline.Frame
	wanted    [sizes]bool  // sizes of outs
	bandLines int          // used instead of the plan's unless 0; a multiple of four
	lines     int          // height of a band
	above     int          // number of lines by which the first band is shorter
	next      atomic.Int32 // next band to take
	end       sync.WaitGroup
	arrivals
}

// arrivals is the state of a pass with filling frames, needed to hand on lines in order.
type arrivals struct {
	mu     sync.Mutex
	done   []bool // by band
	first  int    // first band that is not done
	failed error  // error from waiting for the input's lines
}

// run executes the pass. It returns nil when all bands are done, or the error of waiting for the input's lines.
func (p *pass) run(ctx context.Context, s *Stage, in *pipeline.Frame, outs []*pipeline.Frame) error {
	p.ctx, p.plan, p.in, p.outs = ctx, s.plan, in, outs
	p.wanted = [sizes]bool{}
	for i, out := range outs {
		if out != nil {
			p.wanted[s.plan.outs[i].size] = true
		}
	}
	p.next.Store(0)
	p.lines = cmp.Or(p.bandLines, p.plan.bandLines)
	if p.plan.turn.Transpose {
		p.lines = min((p.lines+7)&^7, bandLines) // at all sizes pairs of pixels, which share chroma
	}
	p.above, p.failed = 0, nil
	p.fill()
	helpers := s.workers[1:max(1, min(len(s.workers), p.bands()))]
	p.end.Add(len(helpers))
	for _, w := range helpers {
		w.start <- p
	}
	s.workers[0].work(p)
	p.end.Wait()
	p.ctx, p.in, p.outs = nil, nil, nil
	return p.failed
}

// bands returns the number of bands.
func (p *pass) bands() int { return (p.in.Format.Height + p.above + p.lines - 1) / p.lines }

// from returns the first line of a band.
func (p *pass) from(band int) int { return min(max(0, band*p.lines-p.above), p.in.Format.Height) }

// fill prepares the pass to hand on lines band by band, if an output is filling and can be handed on before it is whole.
func (p *pass) fill() {
	p.done, p.first = p.done[:0], 0
	if p.plan.turn.Whole() || !slices.ContainsFunc(p.outs, func(out *pipeline.Frame) bool { return out != nil && out.Filling() }) {
		return
	}
	if p.lines = min(p.lines, sliceLines); p.lines > haloLines {
		p.above = haloLines
	}
	p.done = slices.Grow(p.done, p.bands())[:p.bands()]
	clear(p.done)
}

// finish records that a band is done, and hands on all lines that are done from the top. It does nothing if no output
// is filling.
func (p *pass) finish(band int) {
	if len(p.done) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done[band] = true
	if p.failed != nil || !p.done[p.first] {
		return
	}
	for p.first < len(p.done) && p.done[p.first] {
		p.first++
	}
	end := p.from(p.first)
	for i, out := range p.outs {
		if out != nil {
			out.Arrive(p.plan.outs[i].lines(end))
		}
	}
}

// fail ends the pass: no further lines are handed on.
func (p *pass) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = cmp.Or(p.failed, err)
	p.next.Store(int32(p.in.Format.Height)) // no further band begins
}

// lines returns the number of output lines that are complete when the first y lines of the full size are done. For
// 4:2:0 it is even, because two lines are made at a time.
func (o *output) lines(y int) int {
	n := y >> o.size
	if o.planes() {
		n &^= 1
	}
	return n
}

// planes reports whether the output's format is 4:2:0, of which two lines are written at a time.
func (o *output) planes() bool {
	return o.format.Pixel == pipeline.I420 || o.format.Pixel == pipeline.NV12
}

// A worker processes one band at a time.
type worker struct {
	start chan *pass
	end   *sync.WaitGroup
	tone  *tone
	stats Statistics

	pass *pass
	plan *plan
	have int // number of input lines that may be read
	scratch
}

// A scratch contains a worker's line buffers.
type scratch struct {
	raw     []byte // a line's samples as words; nil if the input has words
	marks   line
	black   ring // samples minus the black level
	static  ring // samples with the known defects repaired
	dynamic ring // samples with the found defects repaired as well
	even    ring // samples with lens shading corrected
	samples ring // linear samples
	size    [sizes]picture
	output  [3]line // luma and chroma, or R', G' and B', as written to the output
	turned  turnScratch

	columns  [4]columns // linear samples on the short way
	columnsY [4]int     // line of the frame in each of columns; -1: none
	bytes    []byte     // a line of RGB24 that is written in several pieces
}

// ringLines is the number of lines that a ring keeps. It is greater than the range of lines that any step needs while a
// quarter-size picture is sharpened: 12 lines.
const ringLines = 16

// A ring keeps the most recent lines of a step.
type ring struct {
	lines [ringLines]line
	y     [ringLines]int // line of the frame stored at each place; -1: none
}

func (r *ring) resize(width int) {
	for i := range r.lines {
		r.lines[i] = newLine(width)
	}
}

func (r *ring) clear() {
	for i := range r.y {
		r.y[i] = -1
	}
}

// get returns the place for line y, and whether it already contains that line. If not, the caller must fill it.
func (r *ring) get(y int) (line, bool) {
	i := y % ringLines
	if r.y[i] == y {
		return r.lines[i], true
	}
	r.y[i] = y
	return r.lines[i], false
}

func (w *worker) run() {
	for p := range w.start { // ends: Close closes it
		w.work(p)
		w.end.Done()
	}
}

// resize allocates the lines that the plan needs.
func (w *worker) resize(p *plan) {
	width := p.in.Width
	w.scratch, w.stats = scratch{}, Statistics{}
	if p.samples.Bits == 8 || p.samples.Packed {
		w.raw = make([]byte, 2*width)
	}
	if p.colors {
		for i := range w.columns {
			w.columns[i] = newColumns(width)
		}
		w.bytes = make([]byte, 3*width)
		return
	}
	w.black.resize(width)
	w.samples.resize(width)
	if len(p.defects) > 0 {
		w.static.resize(width)
	}
	if p.hot > 0 {
		w.dynamic.resize(width)
		w.marks = newLine(width)
	}
	if p.shading != nil {
		w.even.resize(width)
	}
	for i := range w.size {
		if p.wanted[i] {
			w.size[i].resize(i, p)
		}
	}
	for i := range w.output {
		w.output[i] = newLine(max(width, bandLines))
	}
	w.turned.resize(p)
}

func (w *worker) work(p *pass) {
	height := p.in.Format.Height
	w.pass, w.plan, w.have = p, p.plan, p.in.Lines()
	for {
		band := int(p.next.Add(1) - 1)
		if p.from(band) >= height {
			break
		}
		w.band(p.from(band), p.from(band+1))
		p.finish(band)
	}
	w.pass, w.plan = nil, nil
}

// await waits until line y of the input may be read. If the input is damaged, the pass fails, and what is read then
// does not matter.
func (w *worker) await(y int) {
	if y < w.have {
		return
	}
	var err error
	if w.have, err = w.pass.in.WaitLines(w.pass.ctx, y+1); err != nil {
		w.pass.fail(err)
		w.have = w.pass.in.Format.Height
	}
}

// band writes the lines from begin to before end of the full size, and the corresponding lines of the other sizes, to the
// outputs, and adds the observed ones to the statistics.
func (w *worker) band(begin, end int) {
	for _, r := range []*ring{&w.black, &w.static, &w.dynamic, &w.even, &w.samples} {
		r.clear()
	}
	for i := range w.size {
		w.size[i].clear()
	}
	w.columnsY = [4]int{-1, -1, -1, -1}
	in := w.plan.in
	for y := begin; y < end; y++ {
		for i, wanted := range w.pass.wanted {
			switch {
			case !wanted || (y+1)%(1<<i) != 0:
			case w.plan.turn.Transpose:
				w.sharpLine(i, y>>i) // writeTransposed finds it
			default:
				w.write(i, y>>i)
			}
		}
		if w.plan.observe && observed(y) {
			w.stats.line(w.evenLine(y), y, in.Width, in.Height, &w.plan.levels)
		}
	}
	for i, wanted := range w.pass.wanted {
		if wanted && w.plan.turn.Transpose {
			w.writeTransposed(i, begin>>i, end>>i)
		}
	}
}
