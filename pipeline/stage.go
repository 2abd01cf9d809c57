// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// stageNode runs one stage, with a queue in front of it and one port behind it for every wanted format.
type stageNode struct {
	graph    *Graph
	name     string
	stage    Stage
	from     *point
	up       *stageNode // the stage that from belongs to; nil behind a source
	consumer *consumer
	holds    int  // maximum number of frames that the stage works on at a time
	slices   bool // the stage can read filling frames (StageNeeds.Slices)
	passes   int  // StageNeeds.Passes
	await    func(context.Context)
	worked   Histogram // durations of Process
	portList atomic.Pointer[[]*point]

	mu      sync.Mutex // held while the stage plans or works, and while outputs are attached to its ports or removed
	outs    []*Frame
	retired chan retiree

	retiredPorts []*point // pruned ports of which frames were still in use; guarded by the graph's lock
}

// maxPorts is the maximum number of formats that one stage can make in one pass.
const maxPorts = 8

// A retiree is an input frame whose outputs the device is still writing, or which the stage is still to pass on to the
// consumers of a point.
type retiree struct {
	in   *Frame
	outs [maxPorts]*Frame
	to   *point
	at   time.Time // when the stage got it
}

func newStageNode(g *Graph, name string, st Stage, needs StageNeeds, from *point, depth int) *stageNode {
	account := NewAccount(name, g.cfg.Recorder)
	n := &stageNode{
		graph: g, name: name, stage: st, from: from, holds: max(needs.Holds, 1), slices: needs.Slices, passes: needs.Passes, await: needs.Await,
		outs: make([]*Frame, maxPorts), retired: make(chan retiree, max(needs.Passes-2, 2)), // two more are before and behind it
	}
	n.consumer = &consumer{queue: NewQueue(depth, Latest, account), account: account, holds: max(depth, 1) + n.holds, stage: n}
	n.consumer.queue.log, n.consumer.queue.kind = g.cfg.Logger, "stage"
	n.portList.Store(&[]*point{})
	return n
}

func (n *stageNode) ports() []*point { return *n.portList.Load() }

// port returns the port for the given format, and creates it if there is none. It returns an error if the stage already
// makes maxPorts formats or cannot make this one too.
func (n *stageNode) port(want Format) (*point, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var formats []Format
	for _, p := range n.ports() {
		if p.format == want {
			return p, nil
		}
		formats = append(formats, p.format)
	}
	if n.passes > 0 && want != n.from.format {
		return nil, fmt.Errorf("%w: stage %s passes on %s, and %s is wanted", ErrNegotiation, n.name, n.from.format, want)
	}
	if len(formats) == maxPorts {
		return nil, fmt.Errorf("%w: stage %s already makes %d formats, the maximum", ErrNegotiation, n.name, maxPorts)
	}
	if err := n.stage.Plan(n.from.format, append(formats, want)); err != nil {
		// Undo the refused plan: the stage goes back to its previous one.
		if len(formats) > 0 {
			err = errors.Join(err, n.stage.Plan(n.from.format, formats))
		}
		return nil, fmt.Errorf("stage %s: %w", n.name, err)
	}
	p := newPoint(n.name, want)
	if p.waits = n.from.waits; n.passes > 0 {
		p.memory = n.from
	}
	p.pool = NewPool(n.name+"/"+want.Pixel.String(), want, nil, nil)
	list := append(append([]*point{}, n.ports()...), p)
	n.portList.Store(&list)
	return p, nil
}

// provision allocates slots until the port's pool has one for every frame that its consumers and the newcomer may hold
// and enough for the stage's own work, so that no output can use up the slots of another. It announces the existing
// slots to the newcomer and each added slot to all consumers. The stage continues to work meanwhile.
func (n *stageNode) provision(p *point, newcomer *consumer) error {
	if n.passes > 0 {
		return n.provisionViews(p, newcomer)
	}
	if err := p.announceSlots(newcomer.useSlot); err != nil {
		return err
	}
	users := append(append([]*consumer{}, *p.consumers.Load()...), newcomer)
	for p.pool.Len() < p.depth+newcomer.holds+n.holds+1 {
		s, err := n.graph.cfg.Allocator.AllocSlot(p.format)
		if err != nil {
			return fmt.Errorf("stage %s: output slot of %d bytes: %w", n.name, p.format.Size(), err)
		}
		for _, c := range users {
			if c.useSlot == nil {
				continue
			}
			if err := c.useSlot(p.pool.Len(), s); err != nil {
				if s.Close != nil {
					err = errors.Join(err, s.Close())
				}
				return err
			}
		}
		p.pool.grow([]Slot{s})
	}
	return nil
}

// announceSlots calls use with each existing slot. use is nil if the consumer need not know the slots.
func (p *point) announceSlots(use func(index int, s Slot) error) error {
	for i := 0; use != nil; i++ {
		s, ok := p.pool.slot(i)
		if !ok {
			break
		}
		if err := use(i, s); err != nil {
			return err
		}
	}
	return nil
}

// rests reports whether the stage has consumers and all of them have failed.
func (n *stageNode) rests() bool {
	some := false
	for _, p := range n.ports() {
		for _, c := range *p.consumers.Load() {
			if some = true; !c.rests() {
				return false
			}
		}
	}
	return some
}

// prune removes p if it has no consumers any more: the stage stops making its format, and its slots are freed, at the
// latest when the graph is closed. If the stage cannot stop making the format, p stays. The caller must hold the
// graph's lock.
func (n *stageNode) prune(p *point) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(*p.consumers.Load()) > 0 || !slices.Contains(n.ports(), p) {
		return
	}
	rest := slices.DeleteFunc(slices.Clone(n.ports()), func(x *point) bool { return x == p })
	if len(rest) > 0 {
		var formats []Format
		for _, x := range rest {
			formats = append(formats, x.format)
		}
		if err := n.stage.Plan(n.from.format, formats); err != nil {
			n.graph.cfg.Logger.Error("stage keeps producing a format that no output uses", "stage", n.name, "format", p.format, "error", err)
			return
		}
	}
	n.portList.Store(&rest)
	if err := p.pool.Close(); err != nil { // a frame is still in use by the device, or leaked
		n.retiredPorts = append(n.retiredPorts, p)
	}
}

func (n *stageNode) run(ctx context.Context) {
	var wg sync.WaitGroup
	if n.passes > 0 {
		wg.Go(func() { n.handOn(ctx) })
	} else {
		wg.Go(func() { n.retire(ctx) })
	}
	for {
		f, err := n.next(ctx)
		if err != nil {
			break
		}
		n.step(ctx, f)
	}
	n.consumer.queue.drain()
	close(n.retired)
	wg.Wait()
	for _, p := range n.ports() {
		p.close()
	}
}

func (n *stageNode) next(ctx context.Context) (*Frame, error) {
	if n.slices {
		return n.consumer.queue.NextFilling(ctx)
	}
	return n.consumer.queue.Next(ctx)
}

// step makes the outputs of one frame that are wanted and hands them on.
func (n *stageNode) step(ctx context.Context, in *Frame) {
	if n.passes > 0 {
		n.passFrame(ctx, in)
		return
	}
	for _, p := range n.ports() {
		p.awaitRoom(ctx)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	ports := n.ports()
	outs := n.outs[:len(ports)]
	wanted := false
	for i, p := range ports {
		outs[i] = nil
		if decide(*p.consumers.Load(), in) {
			outs[i] = p.pool.Get()
			wanted = wanted || outs[i] != nil
		}
	}
	if wanted && in.Filling() {
		n.stepFilling(ctx, in, ports, outs)
		return
	}
	if wanted {
		if err := n.process(ctx, in, outs); err != nil {
			n.graph.check("stage "+n.name, err)
			release(outs)
			n.consumer.queue.Fail(in, DropStage, err) // on behalf of every output behind the stage
			return
		}
	}
	async := false
	retired := retiree{in: in}
	for i, p := range ports {
		out := outs[i]
		if out != nil && out.Ready != nil {
			out.Retain()
			retired.outs[i], async = out, true
		}
		hand(*p.consumers.Load(), in, out, DropPool)
	}
	release(outs)
	switch {
	case async:
		n.retired <- retired
	case wanted:
		n.consumer.queue.Done(in)
	default: // no output was made, so this is no success of the stage
		n.consumer.queue.finish(in)
	}
}

// stepFilling is step for a filling frame: it hands the outputs on before they are made, and finishes them when the
// frame is complete.
func (n *stageNode) stepFilling(ctx context.Context, in *Frame, ports []*point, outs []*Frame) {
	var made [maxPorts]*Frame
	for i, p := range ports {
		out := outs[i]
		if out != nil {
			out.inheritKnown(in)
			out.Fill()
			out.Retain()
			made[i] = out
		}
		hand(*p.consumers.Load(), in, out, DropPool)
	}
	err := n.work(ctx, in, outs)
	ended := in.WaitWhole(ctx)
	for _, out := range made {
		if out == nil {
			continue
		}
		if ended == nil {
			out.inheritRest(in)
		}
		out.Finish(cmp.Or(ended, err))
		out.Release()
	}
	release(outs)
	q := n.consumer.queue
	switch { // the consumers behind the stage see the error themselves, and count the frame
	case ended == nil && err != nil:
		n.graph.check("stage "+n.name, err)
		q.complain(in, err)
		q.finish(in)
	case ended != nil:
		q.finish(in)
	default:
		q.Done(in)
	}
}

func (n *stageNode) process(ctx context.Context, in *Frame, outs []*Frame) error {
	for _, out := range outs {
		if out != nil {
			out.Inherit(in)
		}
	}
	return n.work(ctx, in, outs)
}

// work calls the stage's Process and records its duration.
func (n *stageNode) work(ctx context.Context, in *Frame, outs []*Frame) error {
	begin := time.Now()
	err := n.stage.Process(ctx, in, outs)
	took := time.Since(begin)
	n.worked.Observe(took)
	n.graph.cfg.Recorder.Record(n.name, EventProcessed, in.Sequence, uint64(took))
	return err
}

func release(frames []*Frame) {
	for i, f := range frames {
		if f != nil {
			f.Release()
			frames[i] = nil
		}
	}
}

// retire holds the leases of frames that the device is still working on, both input and outputs, until their fences
// have passed.
func (n *stageNode) retire(ctx context.Context) {
	q := n.consumer.queue
	for r := range n.retired { // ends: run closes it, and fences have ctx
		var failed error
		for _, out := range r.outs {
			if out != nil {
				failed = cmp.Or(failed, out.Ready.Wait(ctx))
				out.Release()
			}
		}
		if failed == nil || ctx.Err() != nil { // a cancelled wait means that everything is ending
			q.Done(r.in)
			continue
		}
		n.graph.check("stage "+n.name, failed)
		q.complain(r.in, failed)
		q.finish(r.in) // the consumers see the fence's error themselves, and count the frame
	}
}
