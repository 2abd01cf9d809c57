package isp

import (
	"sync"
	"sync/atomic"

	"tegracast/pipeline"
)

// bandLines is the height of a band, a multiple of four so that no chroma sample of a half-size I420 is cut. A band
// costs two lines that are linearised again.
const bandLines = 64

// A pass is one Process under way. The workers take bands from it until there are none left.
type pass struct {
	plan      *plan
	gamma     *[1 << 16]uint8
	in        *pipeline.Frame
	outs      []*pipeline.Frame
	bandLines int
	next      atomic.Int32 // the next band
	end       sync.WaitGroup
}

// run does the pass and returns when all bands are done.
func (p *pass) run(s *Stage, in *pipeline.Frame, outs []*pipeline.Frame) {
	p.plan, p.gamma, p.in, p.outs = s.plan, s.gamma, in, outs
	p.next.Store(0)
	helpers := s.workers[1:min(len(s.workers), (in.Format.Height+p.bandLines-1)/p.bandLines)]
	p.end.Add(len(helpers))
	for _, w := range helpers {
		w.start <- p
	}
	s.workers[0].work(p)
	p.end.Wait()
	p.in, p.outs = nil, nil
}

// A worker owns the row buffers of one band at a time. All rows are one pixel or one word longer at the left, for the
// mirrored neighbour.
type worker struct {
	start chan *pass
	end   *sync.WaitGroup

	linear [4][]uint64 // of the lines y-1 to y+2: four 14 bit samples a word, the leftmost in the lowest bits
	full   [2][]uint64 // of the lines y and y+1: one packed R'G'B' pixel a word
	half   [2][]uint64 // of two rows of 2x2 quads, even and odd
}

func (w *worker) run() {
	for p := range w.start {
		w.work(p)
		w.end.Done()
	}
}

func (w *worker) resize(width int) {
	words := (width + 3) / 4
	for i := range w.linear {
		w.linear[i] = make([]uint64, words+2)
	}
	for i := range 2 {
		w.full[i] = make([]uint64, 4*words+1)
		w.half[i] = make([]uint64, 2*words+1)
	}
}

func (w *worker) work(p *pass) {
	height := p.in.Format.Height
	for {
		y := int(p.next.Add(1)-1) * p.bandLines
		if y >= height {
			return
		}
		w.band(p, y, min(y+p.bandLines, height))
	}
}

// band makes the lines from y to end of the full size, and what belongs to them of the half size.
func (w *worker) band(p *pass, y, end int) {
	height := p.in.Format.Height
	w.linearise(p, 0, y-1)
	w.linearise(p, 1, y)
	for ; y < end; y += 2 {
		w.linearise(p, 2, y+1)
		w.linearise(p, 3, y+2)
		l := &w.linear
		if p.plan.full {
			bilinear(w.full[0], l[0], l[1], l[2], p.gamma, redLine)
			if y+1 < height {
				bilinear(w.full[1], l[1], l[2], l[3], p.gamma, blueLine)
			}
		}
		if p.plan.half {
			quads(w.half[y/2%2], l[1], l[2], p.gamma)
		}
		w.write(p, y)
		l[0], l[1], l[2], l[3] = l[2], l[3], l[0], l[1]
	}
}

// linearise fills row buffer i with line y, mirrored into the picture where it is outside.
func (w *worker) linearise(p *pass, i, y int) {
	f := p.in.Format
	switch {
	case y < 0:
		y = -y
	case y >= f.Height:
		y = 2*f.Height - 2 - y
	}
	even, odd := p.plan.r, p.plan.g
	if y%2 != 0 {
		even, odd = p.plan.g, p.plan.b
	}
	linearRow(w.linear[i], p.in.Bytes[y*f.Stride:][:2*f.Width], even, odd)
}

// write gives the rows of the lines y and y+1 to the outputs.
func (w *worker) write(p *pass, y int) {
	for i, o := range p.plan.outs {
		out := p.outs[i]
		if out == nil {
			continue
		}
		switch {
		case o.format.Pixel == pipeline.UYVY && o.half:
			writeUYVY(out, y/2, w.half[y/2%2])
		case o.format.Pixel == pipeline.UYVY:
			writeUYVY(out, y, w.full[0])
			if y+1 < o.format.Height {
				writeUYVY(out, y+1, w.full[1])
			}
		case !o.half:
			writeI420(out, y, w.full[0], w.full[1])
		case y/2%2 == 1:
			writeI420(out, y/2-1, w.half[0], w.half[1])
		}
	}
}
