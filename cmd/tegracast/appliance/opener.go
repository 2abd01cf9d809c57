// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/lines"
	"github.com/tegracast/tegracast/cmd/tegracast/telemetry"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/group"
)

// detachTime is the total time that the outputs removed by a reload have to finish their frames. It also limits
// detaching the temporary output of a view or a still.
const detachTime = 2 * time.Second

// An opener opens and closes the parts that plans name.
type opener struct {
	memory   *memory
	cards    *cards
	storage  *storage
	lines    *lines.Lines
	groups   *group.Set
	bus      *telemetry.Bus
	builder  *builder
	closed   *closedOutputs
	changing sync.Locker // held while parts are closed, and while a reload opens them
	ending   *shutdown   // nil: the shutdown is not watched
	log      *slog.Logger
}

// openParts opens the memory, unless it is open, and those parts of c that p names. After an error, the parts that it
// has opened stay open.
func (op *opener) openParts(c *config.Appliance, p plan) error {
	op.closed.setOutputs(c)
	op.cards.clock = c.Clock
	if err := op.memory.open(c); err != nil {
		return err
	}
	if p.bus {
		if err := op.bus.Open(c.Bus, stateOrCache("bus", "bus"), op.log); err != nil {
			return err
		}
	}
	for i := range c.Lines { // first, because the FPGA may need its reset
		if l := &c.Lines[i]; p.lines[l.Name] {
			if err := op.lines.Open(l); err != nil {
				return err
			}
		}
	}
	op.groups.Configure(c.Groups())
	for i := range c.Sources {
		if s := &c.Sources[i]; p.flows[s.Name] {
			if err := op.builder.addFlow(c, s); err != nil {
				return err
			}
		}
	}
	for i := range c.Outputs {
		if o := &c.Outputs[i]; p.outputs[o.Name] && !op.closed.isStopped(o.Name) {
			switch err := op.builder.addOutput(o); {
			case err == nil:
				op.closed.removeWaiting(o.Name)
			case !op.closed.addWaiting(o, err, p.patient):
				return err
			}
		}
	}
	return nil
}

// replaceParts closes the parts that p names and opens them as c describes them. New views of an output wait meanwhile.
func (op *opener) replaceParts(ctx context.Context, c *config.Appliance, p plan) error {
	op.changing.Lock()
	defer op.changing.Unlock()
	if err := op.closeParts(ctx, c, p); err != nil {
		return err
	}
	return op.openParts(c, p)
}

// closeParts stops and closes the parts that p names: first lines, then each flow after its outputs, then unused cards
// and the memory. An error that it returns means that the GPU is lost; the remaining parts are still open. It only logs
// other errors, and goes on closing.
func (op *opener) closeParts(ctx context.Context, c *config.Appliance, p plan) error {
	bounded, cancel := context.WithTimeout(ctx, detachTime)
	defer cancel()
	tell := func(what, name string, err error) {
		if err != nil {
			op.log.Warn("reload: "+what+" was closed with errors", "name", name, "error", err)
		}
	}
	tell("a GPIO line", "", op.lines.Close(p.lines))
	for _, f := range op.builder.flows.all() {
		for _, o := range slices.Clone(f.outputs) {
			if p.outputs[o.name] {
				tell("an output", o.name, op.builder.dropOutput(bounded, f, o))
			}
		}
		if p.flows[f.name] {
			err := op.builder.dropFlow(f)
			tell("a source", f.name, err)
			if pipeline.DeviceLost(err) {
				return err
			}
		}
	}
	keep := map[string]bool{}
	for i := range c.Sources {
		s := &c.Sources[i]
		if !s.Card.Own || !p.flows[s.Name] {
			keep[s.Card.Name] = !p.memory && !p.cards[s.Card.Name]
		}
	}
	tell("a card", "", op.cards.close(keep))
	if p.memory {
		tell("the driver of files", "", op.storage.close())
		tell("the memory", "", op.memory.close())
	}
	return nil
}

// closeAll closes everything that was opened. No flow may be running, except after the GPU was lost.
func (op *opener) closeAll() error {
	op.changing.Lock() // a snapshot may still be in progress
	defer op.changing.Unlock()
	var errs []error
	do := func(what string, closes func() error) {
		op.ending.Step(what, func() { errs = append(errs, closes()) })
	}
	op.builder.sinks.recordings.End()
	do("the groups", func() error { op.groups.Close(); return nil })
	for _, f := range slices.Backward(op.builder.flows.all()) {
		do("source "+f.name, func() error { return op.builder.dropFlow(f) })
	}
	do("the message bus", op.bus.Close)
	do("the FPGAs", func() error { return op.cards.close(nil) })
	do("the GPIO lines", func() error { return op.lines.Close(nil) })
	do("the driver of files", op.storage.close)
	do("the memory of frames", op.memory.close)
	return errors.Join(errs...)
}

// lostTime is the time limit for closing when the GPU is lost.
const lostTime = 3 * time.Second

// closeAfter closes everything after err. After the loss of the GPU, calls of its driver fail, or wait indefinitely for
// a kernel that hangs. In that case closeAfter first restores the lines and closes the message bus, and leaves what is
// not closed within lostTime to the end of the process.
func (op *opener) closeAfter(err error) error {
	if !pipeline.DeviceLost(err) {
		return op.closeAll()
	}
	lines := errors.Join(op.lines.Close(nil), op.bus.Close())
	closed := make(chan error, 1)
	go func() { closed <- op.closeAll() }()
	select {
	case <-closed: // err is the reason
	case <-time.After(lostTime):
		op.log.Warn("the GPU does not answer: what is still open is freed when the process ends")
	}
	return lines
}
