// SPDX-License-Identifier: Apache-2.0

package xdma

import (
	"context"
	"sync"
)

// A line is an interrupt vector. Several channels and user interrupts share it where the function has fewer vectors than
// they are: then each of them sees every raise, and looks whether it is meant.
type line struct {
	dev      *Device
	vector   int
	channels uint32 // bits in the IRQ block of those that have it
	users    uint32
	shared   bool

	lead chan struct{} // full: somebody waits for the vector, and tells the others

	mu     sync.Mutex
	count  uint64        // raises that were seen
	raised chan struct{} // closed at the next one
}

func newLine(d *Device, vector int) *line {
	return &line{dev: d, vector: vector, lead: make(chan struct{}, 1), raised: make(chan struct{})}
}

// add gives the line to a channel or to a user interrupt.
func (l *line) add(channel, user uint32) {
	l.shared = l.channels|l.users != 0
	l.channels |= channel
	l.users |= user
}

// wait returns nil when the vector was raised since the last wait with the same seen returned nil.
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
		<-l.lead // ends: it has put a value there
		if err != nil {
			return err
		}
	}
}

// next is closed at the next raise. missed: there was one since the last time, which seen counts now.
func (l *line) next(seen *uint64) (next chan struct{}, missed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	missed = *seen != l.count
	*seen = l.count
	return l.raised, missed
}

// follow waits for the vector as the one who leads, unless the last one who did has seen a raise meanwhile.
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
