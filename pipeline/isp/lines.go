// SPDX-License-Identifier: Apache-2.0

package isp

// The steps from the sensor's bytes to linear samples. Each makes its line when it is requested. y may be beyond the
// frame by as much as the steps need; it is mirrored. docs/isp.md §1 to §5.

func (w *worker) blackLine(y int) line {
	p := w.plan
	y = reflect(y, p.in.Height)
	l, ok := w.black.get(y)
	if ok {
		return l
	}
	k := p.levels.blacks(y)
	blackRow(l.at(0, p.in.Width), w.words(y), &k)
	l.mirror(p.in.Width)
	return l
}

// words returns the samples of line y as little-endian words, which are valid until the next call.
func (w *worker) words(y int) []byte {
	p := w.plan
	w.await(y)
	src := w.pass.in.Bytes[y*p.in.Stride:][:p.line]
	if w.raw == nil {
		return src
	}
	words(w.raw, src, p.samples)
	return w.raw
}

// staticLine returns line y with known defects repaired.
func (w *worker) staticLine(y int) line {
	p := w.plan
	y = reflect(y, p.in.Height)
	defects := p.defects[y]
	if len(defects) == 0 {
		return w.blackLine(y)
	}
	l, ok := w.static.get(y)
	if ok {
		return l
	}
	mid := w.blackLine(y)
	up, down := w.blackLine(y-p.step), w.blackLine(y+p.step)
	copy(l, mid)
	for _, d := range defects {
		l[margin+d.x] = repaired(up, mid, down, margin+d.x, p.step, d.usable)
	}
	l.mirror(p.in.Width)
	return l
}

// dynamicLine returns line y with outliers repaired as well.
func (w *worker) dynamicLine(y int) line {
	p := w.plan
	if p.hot == 0 {
		return w.staticLine(y)
	}
	y = reflect(y, p.in.Height)
	l, ok := w.dynamic.get(y)
	if ok {
		return l
	}
	up, mid, down := w.staticLine(y-p.step), w.staticLine(y), w.staticLine(y+p.step)
	copy(l, mid)
	if suspectsRow(w.marks, up, mid, down, p.in.Width, p.step, p.hot) != 0 {
		for x := range p.in.Width {
			if w.marks[margin+x] != 0 {
				l[margin+x] = repaired(up, mid, down, margin+x, p.step, 15)
			}
		}
		l.mirror(p.in.Width)
	}
	return l
}

// evenLine returns line y with lens shading corrected as well.
func (w *worker) evenLine(y int) line {
	p := w.plan
	if p.shading == nil {
		return w.dynamicLine(y)
	}
	y = reflect(y, p.in.Height)
	l, ok := w.even.get(y)
	if !ok {
		p.shading.apply(l.at(0, p.in.Width), w.dynamicLine(y).at(0, p.in.Width), y)
		l.mirror(p.in.Width)
	}
	return l
}

// linearLine returns line y after white balance, with samples from 0 to linearMax.
func (w *worker) linearLine(y int) line {
	p := w.plan
	y = reflect(y, p.in.Height)
	l, ok := w.samples.get(y)
	if !ok {
		a := p.levels.gains(y)
		if dst := l.at(0, p.in.Width); p.direct {
			k := p.levels.blacks(y)
			linearRow(dst, w.words(y), &k, &a)
		} else {
			gainRow(dst, w.evenLine(y).at(0, p.in.Width), &a)
		}
		l.mirror(p.in.Width)
	}
	return l
}
