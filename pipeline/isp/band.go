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

// bandLines is the height of a band, a multiple of four so that no line of the quarter size is cut. What a band needs
// of its neighbours' lines is made again: two to eight lines of samples.
const bandLines = 64

// shortLines is that of the short way, which makes only two lines again: with so many bands no worker waits long for
// another's last one.
const shortLines = 16

// sliceLines is the height of a band of a frame that fills, at most: its lines are handed on when the band is done. Bands end
// haloLines before a multiple of sliceLines, since a band looks at lines below its end: when a slice has come, a band can be
// finished. Where defects are repaired and the picture is sharpened a band looks further, and waits for the next slice.
const (
	sliceLines = 16
	haloLines  = 4
)

// A pass is one Process under way. The workers take bands from it until there are none left.
type pass struct {
	ctx       context.Context
	plan      *plan
	in        *pipeline.Frame
	outs      []*pipeline.Frame
	bandLines int          // a multiple of four; 0: what the plan needs
	lines     int          // of a band
	above     int          // lines that the first band is shorter by
	next      atomic.Int32 // the next band
	end       sync.WaitGroup
	arrivals
}

// arrivals is what a pass of frames that fill keeps, to hand on lines in their order.
type arrivals struct {
	mu     sync.Mutex
	done   []bool // by band
	first  int    // band that is not done
	failed error  // of waiting for the input's lines
}

// run does the pass and returns when all bands are done, or the input has turned out to be damaged.
func (p *pass) run(ctx context.Context, s *Stage, in *pipeline.Frame, outs []*pipeline.Frame) error {
	p.ctx, p.plan, p.in, p.outs = ctx, s.plan, in, outs
	p.next.Store(0)
	p.lines = cmp.Or(p.bandLines, p.plan.bandLines)
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

// bands is how many there are.
func (p *pass) bands() int { return (p.in.Format.Height + p.above + p.lines - 1) / p.lines }

// from is the first line of a band.
func (p *pass) from(band int) int { return min(max(0, band*p.lines-p.above), p.in.Format.Height) }

// fill makes ready to hand on lines while there are more to come, if somebody waits for them.
func (p *pass) fill() {
	p.done, p.first = p.done[:0], 0
	if !slices.ContainsFunc(p.outs, func(out *pipeline.Frame) bool { return out != nil && out.Filling() }) {
		return
	}
	if p.lines = min(p.lines, sliceLines); p.lines > haloLines {
		p.above = haloLines
	}
	p.done = slices.Grow(p.done, p.bands())[:p.bands()]
	clear(p.done)
}

// finish notes that a band is done, and hands on what is done from the top.
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

// fail ends the pass: nothing is handed on any more.
func (p *pass) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = cmp.Or(p.failed, err)
	p.next.Store(int32(p.in.Format.Height)) // no band begins any more
}

// lines is how many lines of the output are made of the first y of the full size. Of 4:2:0 two are made at once.
func (o *output) lines(y int) int {
	n := y >> o.size
	if o.format.Pixel == pipeline.I420 || o.format.Pixel == pipeline.NV12 {
		n &^= 1
	}
	return n
}

// A worker owns the lines of one band at a time.
type worker struct {
	start chan *pass
	end   *sync.WaitGroup
	tone  *tone
	stats Statistics

	pass *pass
	plan *plan
	have int // lines of the input that may be read
	scratch
}

// A scratch is a worker's lines.
type scratch struct {
	raw     []byte // words of a line that is not in words
	marks   line
	black   ring // samples less the black level
	static  ring // known defects repaired
	dynamic ring // found defects repaired
	even    ring // lens shading evened out
	samples ring // linear samples
	size    [sizes]picture
	output  [3]line // luma and chroma, or R', G' and B', as they are written

	columns  [4]columns // linear samples on the short way
	columnsY [4]int
	bytes    []byte // a line of RGB24 that is written in pieces
}

// ringLines is more than any step looks back and ahead while a quarter-size picture is sharpened: 12 lines.
const ringLines = 16

// A ring keeps the last lines of a step.
type ring struct {
	lines [ringLines]line
	y     [ringLines]int // which line of the frame stands there; -1: none
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

// get returns the place of line y, and whether it holds that line already. If not the caller fills it.
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

// resize makes the lines that the plan needs, and no others.
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
			w.size[i].resize(width>>i, p)
		}
	}
	for i := range w.output {
		w.output[i] = newLine(width)
	}
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

// await waits until line y of the input may be read. If that cannot be the pass fails, and what is read is of no use.
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

// band makes the lines from y to end of the full size, and what belongs to them of the other sizes.
func (w *worker) band(y, end int) {
	for _, r := range []*ring{&w.black, &w.static, &w.dynamic, &w.even, &w.samples} {
		r.clear()
	}
	for i := range w.size {
		w.size[i].clear()
	}
	w.columnsY = [4]int{-1, -1, -1, -1}
	in := w.plan.in
	for ; y < end; y++ {
		for i := range sizes {
			if w.plan.wanted[i] && (y+1)%(1<<i) == 0 {
				w.write(i, y>>i)
			}
		}
		if w.plan.observe && observed(y) {
			w.stats.line(w.evenLine(y), y, in.Width, in.Height, &w.plan.levels)
		}
	}
}
