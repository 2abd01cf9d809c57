package isp

// The steps from the sensor's bytes to linear samples, each of which makes its line when it is asked for. y may lie
// beyond the frame by what the steps look around: it is mirrored. docs/isp.md §1 to §5.

func (w *worker) blackLine(y int) line {
	p := w.plan
	y = reflect(y, p.in.Height)
	l, ok := w.black.get(y)
	if ok {
		return l
	}
	width := p.in.Width
	src := w.pass.in.Bytes[y*p.in.Stride:][:p.in.Pixel.LineBytes(width)]
	if w.raw != nil {
		words(w.raw, src, p.samples.Bits)
		src = w.raw
	}
	c := p.levels.channels(y)
	blackRow(l.at(0, width), src, &blackArgs{
		mask: p.levels.mask, shift: uint16(p.levels.shift),
		black: [2]uint16{p.levels.black[c[0]], p.levels.black[c[1]]},
	})
	l.mirror(width)
	return l
}

// staticLine has the known defects repaired.
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

// dynamicLine has the defects repaired that stick out.
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

// evenLine has the lens shading evened out.
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

// linearLine has the white balance, from 0 to linearMax.
func (w *worker) linearLine(y int) line {
	p := w.plan
	y = reflect(y, p.in.Height)
	l, ok := w.samples.get(y)
	if !ok {
		a := p.levels.gains(y)
		gainRow(l.at(0, p.in.Width), w.evenLine(y).at(0, p.in.Width), &a)
		l.mirror(p.in.Width)
	}
	return l
}
