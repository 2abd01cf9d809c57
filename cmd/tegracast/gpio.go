package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tegracast/tegracast/board/gpio"
	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/pipeline"
)

// outLine and inLine are lines of the board (gpio.Output, gpio.Input); Close puts a line back as it was.
type outLine interface {
	Set(value int) error
	Close() error
}

type inLine interface {
	Edges() <-chan gpio.Edge
	Lost() uint64
	Close() error
}

// boardLines opens lines; outputs are driven with 0, inputs report rising edges.
type boardLines interface {
	Output(l gpio.Line, consumer string) (outLine, error)
	Input(l gpio.Line, consumer string) (inLine, error)
}

// chips are the board's own lines.
type chips struct{}

// Output implements boardLines.
func (chips) Output(l gpio.Line, consumer string) (outLine, error) {
	o, err := gpio.OpenOutput(l, consumer, 0)
	if err != nil {
		return nil, err
	}
	return o, nil
}

// Input implements boardLines.
func (chips) Input(l gpio.Line, consumer string) (inLine, error) {
	in, err := gpio.OpenInput(l, consumer, gpio.Rising)
	if err != nil {
		return nil, err
	}
	return in, nil
}

// A pin is one of the service's lines.
type pin interface {
	run(ctx context.Context) // until ctx ends
	close() error            // after run
	books() pinBooks
}

// pinBooks are what a pin counts; an output has pulses, an input edges.
type pinBooks struct {
	output         bool
	pulses, missed uint64
	errors         uint64
	lost           uint64
	match          capture.MatchStats
	pps            time.Duration // offset of the machine's clock; of the pulse per second only
}

// watcher is a pin that looks at the frames of a source, on the source's own goroutine.
type watcher interface{ frame(f *pipeline.Frame) }

// pins are the service's lines of now.
type pins struct {
	env     env
	cameras func() []supervised                  // whose states the LED shows
	health  func() (ready bool, stalled error)   // the same; nil: nobody watches
	flashes chan time.Time                       // from trigger to strobe: a pulse begins
	watch   atomic.Pointer[map[string][]watcher] // by source

	mu   sync.Mutex
	list map[string]*openPin
}

// openPin is a pin with its goroutine.
type openPin struct {
	pin
	source string // that it looks at
	cancel context.CancelFunc
	done   chan struct{} // nil before it runs
}

func newPins(e env, cameras func() []supervised) *pins {
	return &pins{env: e, cameras: cameras, flashes: make(chan time.Time, 1), list: map[string]*openPin{}}
}

// open opens those lines of a configuration that names names.
func (p *pins) open(d *document, names map[string]bool) error {
	lines := d.GPIO.lines()
	for _, name := range lineOrder() {
		line, ok := lines[name]
		if !ok || !names[name] {
			continue
		}
		next, err := p.make(&d.GPIO, name, line, d)
		if err != nil {
			return d.errorAt("$.gpio."+name+".line", "%v", err)
		}
		p.mu.Lock()
		p.list[name] = &openPin{pin: next, source: d.GPIO.source(name)}
		p.mu.Unlock()
	}
	p.publish()
	return nil
}

// make opens one line.
func (p *pins) make(c *GPIOConfig, name string, line gpio.Line, d *document) (pin, error) {
	board, consumer := p.env.lines, "tegracast-"+name
	if board == nil {
		board = chips{}
	}
	if name == triggerInLine || name == ppsLine {
		l, err := board.Input(line, consumer)
		if err != nil {
			return nil, err
		}
		in, _ := d.source(c.source(name)).format()
		return newEdgePin(c, name, l, in.Rate.Period()), nil
	}
	l, err := board.Output(line, consumer)
	if err != nil {
		return nil, err
	}
	out := &outPin{name: name, line: l, log: p.env.log}
	switch name {
	case triggerLine:
		return &triggerPin{outPin: out, period: c.Trigger.Rate.V.Period(), width: c.Trigger.Width.V, flashes: p.flashes}, nil
	case strobeLine:
		return newStrobePin(out, c, p.flashes, d), nil
	case resetLine:
		return &resetPin{outPin: out, config: *c.Reset}, nil
	}
	return &ledPin{outPin: out, state: p.mood}, nil
}

// publish tells the sources which pins look at their frames.
func (p *pins) publish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string][]watcher{}
	for _, x := range p.list {
		if w, ok := x.pin.(watcher); ok && x.source != "" {
			all[x.source] = append(all[x.source], w)
		}
	}
	p.watch.Store(&all)
}

// seen shows a source's frame to who looks at it. It allocates nothing.
func (p *pins) seen(source string, f *pipeline.Frame) {
	if all := p.watch.Load(); all != nil {
		for _, w := range (*all)[source] {
			w.frame(f)
		}
	}
}

// start runs those pins that do not run yet, until ctx ends.
func (p *pins) start(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range p.list {
		if x.done == nil {
			var own context.Context
			own, x.cancel = context.WithCancel(ctx)
			x.done = make(chan struct{})
			go func() {
				defer close(x.done)
				x.pin.run(own)
			}()
		}
	}
}

// drop stops and closes pins, which puts their lines back as they were; nil drops all.
func (p *pins) drop(names map[string]bool) error {
	var gone []*openPin
	p.mu.Lock()
	for _, name := range slices.Sorted(maps.Keys(p.list)) {
		if names == nil || names[name] {
			gone = append(gone, p.list[name])
			delete(p.list, name)
		}
	}
	p.mu.Unlock()
	p.publish()
	var errs []error
	for _, x := range gone {
		if x.done != nil {
			x.cancel()
			<-x.done
		}
		errs = append(errs, x.close())
	}
	return errors.Join(errs...)
}

// all are the books of the pins of now, by name.
func (p *pins) all() map[string]pinBooks {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := map[string]pinBooks{}
	for name, x := range p.list {
		list[name] = x.books()
	}
	return list
}

// reset pulses the reset line of the FPGA behind a device file. It returns false when there is no such line.
func (p *pins) reset(ctx context.Context, device string) (bool, error) {
	p.mu.Lock()
	x := p.list[resetLine]
	p.mu.Unlock()
	if x == nil {
		return false, nil
	}
	r := x.pin.(*resetPin)
	if r.config.Device != device {
		return false, nil
	}
	return true, r.pulse(ctx)
}
