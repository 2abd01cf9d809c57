// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrDropped is the error of the fence of a frame that a stage does not pass on (StageNeeds.Passes). Nothing is logged.
var ErrDropped = errors.New("the stage drops the frame")

// provisionViews is provision for a stage that passes frames on: its own slots have no memory, so the source or stage
// before it needs those that its consumers may hold.
func (n *stageNode) provisionViews(p *point, newcomer *consumer) error {
	if newcomer.useSlot != nil {
		return fmt.Errorf("%w: it needs slots of its own, and stage %s passes frames on: take them from the stage before it", ErrMemory, n.name)
	}
	var err error
	if n.up == nil {
		err = n.graph.checkSlots(n.from, newcomer.holds)
	} else {
		err = n.up.provision(n.from, &consumer{holds: newcomer.holds})
	}
	if err != nil {
		return err
	}
	if more := p.depth + newcomer.holds + n.passes + 1 - p.pool.Len(); more > 0 {
		p.pool.grow(make([]Slot, more))
	}
	return nil
}

// passFrame gives a frame to the stage, if any consumer takes frames. handOn hands it on.
func (n *stageNode) passFrame(ctx context.Context, in *Frame) {
	r := retiree{in: in, at: time.Now()}
	if n.await != nil && len(n.ports()) > 0 {
		n.await(ctx)
	}
	n.mu.Lock()
	if ports := n.ports(); len(ports) > 0 && len(*ports[0].consumers.Load()) > 0 && !n.rests() {
		r.to = ports[0]
		r.outs[0] = r.to.pool.Get()
	}
	if out := r.outs[0]; out != nil {
		out.view(in)
		n.outs[0] = out
		if err := n.process(ctx, in, n.outs[:1]); err != nil {
			n.mu.Unlock()
			n.graph.check("stage "+n.name, err)
			out.Release()
			n.consumer.queue.Fail(in, DropStage, err) // on behalf of every output behind the stage
			return
		}
	}
	n.mu.Unlock()  // handOn needs it
	n.retired <- r // ends: handOn takes it after its fence, and fences have ctx
}

// handOn hands frames on when the stage has finished with them, until run closes n.retired. If it finishes with several
// at once, they are handed on at the distances at which they came, or 3/4 of a frame period if that is less, so that
// consumers that keep up with the source lose none. A frame that the stage keeps for a fixed time at most is not delayed
// beyond that.
func (n *stageNode) handOn(ctx context.Context) {
	q, space := n.consumer.queue, n.from.format.Rate.Period()*3/4
	if n.from.waits {
		space = 0
	}
	var last, came time.Time
	for r := range n.retired { // ends: run closes it, and fences have ctx
		out := r.outs[0]
		if out != nil && out.Ready != nil {
			err := out.Ready.Wait(ctx)
			if out.Ready = nil; err != nil {
				out.Release()
				n.dropFrame(ctx, r.in, err)
				continue
			}
		}
		if r.to == nil { // nobody wants it, so this is no success of the stage
			q.finish(r.in)
			continue
		}
		r.to.awaitRoom(ctx)
		sleep(ctx, time.Until(last.Add(min(space, r.at.Sub(came)))))
		last, came = time.Now(), r.at
		n.mu.Lock()
		list := *r.to.consumers.Load()
		decide(list, r.in)
		hand(list, r.in, out, DropPool)
		n.mu.Unlock()
		if out != nil {
			out.Release()
		}
		q.Done(r.in)
	}
}

// dropFrame drops a frame on behalf of every output behind the stage.
func (n *stageNode) dropFrame(ctx context.Context, in *Frame, err error) {
	switch {
	case ctx.Err() != nil: // everything ends
		n.consumer.queue.Fail(in, DropDetached, nil)
	case errors.Is(err, ErrDropped):
		n.consumer.queue.Fail(in, DropStage, nil)
	default:
		n.graph.check("stage "+n.name, err)
		n.consumer.queue.Fail(in, DropStage, err)
	}
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
