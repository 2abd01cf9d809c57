// SPDX-License-Identifier: Apache-2.0

package xdma

import (
	"context"
	"sync"
)

// A line is an interrupt vector. If the function has fewer vectors than there are channels and user interrupts, several
// of these share a line: each of them sees every raise and checks whether it is affected.
type line struct {
	dev      *Device
	vector   int
	channels uint32 // IRQ block bits of the channels that use the line
	users    uint32 // IRQ block bits of the user interrupts that use the line
	shared   bool   // by more than one channel or user interrupt

	lead chan struct{} // full: a goroutine waits for the vector and will notify the others

	mu     sync.Mutex
	count  uint64        // raises seen
	raised chan struct{} // closed at the next raise
}

func newLine(d *Device, vector int) *line {
	return &line{dev: d, vector: vector, lead: make(chan struct{}, 1), raised: make(chan struct{})}
}

// add assigns the line to a channel or a user interrupt.
func (l *line) add(channel, user uint32) {
	l.shared = l.channels|l.users != 0
	l.channels |= channel
	l.users |= user
}

// wait returns nil when the vector has been raised since the previous wait with the same seen returned nil.
func (l *line) wait(ctx context.Context, seen *uint64) error {
	if !l.shared {
		return l.dev.cfg.Interrupts.Wait(ctx, l.vector)
	}
	for {
		next, missed := l.next(seen)
		if missed {
			return nil
		}
		select {
		case l.lead <- struct{}{}:
		case <-next:
			continue
		case <-ctx.Done():
			return ctx.Err()
		}
		err := l.follow(ctx, seen)
		<-l.lead // ends: lead holds this goroutine's own value
		if err != nil {
			return err
		}
	}
}

// next returns a channel that is closed at the next raise. missed reports whether there was a raise since the previous
// call with the same seen.
func (l *line) next(seen *uint64) (next chan struct{}, missed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	missed = *seen != l.count
	*seen = l.count
	return l.raised, missed
}

// follow waits for the vector as the leader, unless the previous leader has seen a raise in the meantime. After a raise
// it masks the line's sources and notifies the others.
func (l *line) follow(ctx context.Context, seen *uint64) error {
	l.mu.Lock()
	missed := *seen != l.count
	l.mu.Unlock()
	if missed {
		return nil
	}
	if err := l.dev.cfg.Interrupts.Wait(ctx, l.vector); err != nil {
		return err
	}
	l.dev.mask(l)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count++
	close(l.raised)
	l.raised = make(chan struct{})
	return nil
}
