// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tegracast/tegracast/pipeline/bus/store"
)

const (
	most       = 2048                   // messages that the server has not acknowledged
	mostBytes  = 16 << 20               // of theirs
	piece      = 64                     // messages that are taken at a time
	pace       = 10 * time.Millisecond  // from one round to the next one, at least: many messages take one turn
	manyPace   = 2 * pace               // the same, when there are so many that rounds are what they cost
	idle       = 250 * time.Millisecond // the same, at most
	ackTime    = 10 * time.Second       // in which a server acknowledges
	syncTime   = time.Second            // what was written longer ago is on the disk for sure
	lastTime   = time.Second            // for what waits when Run ends
	firstRetry = 500 * time.Millisecond // it doubles
	lastRetry  = 10 * time.Second
)

// pump has what one goroutine moves messages with.
type pump struct {
	store *store.Store // nil: the disk cannot keep anything

	link    link // nil: there is none
	number  int  // of the link: what an earlier one says is not heard
	dialing context.CancelFunc
	retry   time.Time
	wait    time.Duration
	good    bool // the link has taken a message
	told    bool // the log knows that the bus does not take messages

	window  []flying // in the order of the messages
	flying  int      // bytes of their data
	base    uint64   // token of window[0]
	failure error    // of sending: the link is to be lost
	taken   []queued
	synced  time.Time
	rounded time.Time // when the last round was
	broken  bool      // the disk has failed, and the log knows
}

// flying is a message that the server has not acknowledged, or that waits for one in front of it.
type flying struct {
	queued
	stored bool // it is in the store
	safe   bool
	at     time.Time
}

// A loss is what a link says of its end.
type loss struct {
	link int
	err  error
}

// dialed is what dialing came to.
type dialed struct {
	link link
	err  error
}

// work moves messages until ctx ends.
func (p *Publisher) work(ctx context.Context) {
	tick := time.NewTicker(idle)
	defer tick.Stop()
	for {
		if len(p.window) == 0 { // else there are acknowledgements to come, which wake nobody
			select {
			case <-ctx.Done():
				return
			case <-p.wake:
			case <-tick.C:
			case d := <-p.dialed:
				p.connected(d)
			}
		}
		p.round(time.Now())
		p.connect(ctx)
		wait := pace
		if len(p.window) > piece {
			wait = manyPace
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// flush goes on until the server has everything, ctx ends, or there is no link.
func (p *Publisher) flush(ctx context.Context) {
	for p.link != nil {
		p.round(time.Now())
		if st := p.Stats(); st.Waiting == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pace):
		}
	}
}

// round takes what the server has acknowledged, and sends what it may.
func (p *Publisher) round(now time.Time) {
	p.settle()
	held := now.Sub(p.rounded) > syncTime // by the disk, or by who has stopped the process: what has come meanwhile is read after this round
	p.rounded = now
	if p.link != nil && len(p.window) > 0 && !held && now.Sub(p.window[0].at) > ackTime {
		p.lose(errors.New("the server acknowledges nothing"))
	}
	if p.link == nil || p.store != nil && p.store.Unread() > 0 || p.crowded() {
		p.spill()
		p.keep()
	}
	if p.link != nil {
		p.send(now)
		p.failure = cmp.Or(p.failure, p.link.flush(time.Now()))
	}
	if p.store != nil && now.Sub(p.synced) > syncTime {
		p.synced = now
		p.failed(p.store.Sync())
	}
	p.count()
}

// settle takes the acknowledgements.
func (p *Publisher) settle() {
	lost, published := p.failure, uint64(0)
	p.failure = nil
	if p.link != nil {
		p.link.heard(func(token uint64, err error) {
			i := token - p.base
			refused := errors.Is(err, errRefused)
			switch {
			case err != nil && !refused:
				lost = err
			case i >= uint64(len(p.window)) || p.window[i].safe: // it has said that before
			case refused:
				p.refuse(&p.window[i], err)
			default:
				p.window[i].safe = true
				published++
			}
		})
	}
	p.mu.Lock()
	p.stats.Published += published
	p.losses = slices.DeleteFunc(p.losses, func(l loss) bool {
		if l.link == p.number && p.link == nil { // it was lost before it is taken over
			return false
		}
		if l.link == p.number {
			lost = l.err
		}
		return true
	})
	p.mu.Unlock()
	if published > 0 && !p.good { // not before: a server may let in whom it does not hear
		p.good, p.told, p.wait = true, false, 0
		p.config.Logger.Info("the bus takes messages", "server", p.config.URL)
	}
	n, stored := 0, 0
	for ; n < len(p.window) && p.window[n].safe; n++ {
		p.flying -= len(p.window[n].Data)
		p.window[n].block.done()
		if p.window[n].stored {
			stored++
		}
	}
	if n > 0 {
		p.window, p.base = append(p.window[:0], p.window[n:]...), p.base+uint64(n)
	}
	if stored > 0 {
		p.store.Done(stored)
	}
	if lost != nil && p.link != nil {
		p.lose(lost)
	}
}

// refuse says that the server will never take a message.
func (p *Publisher) refuse(m *flying, err error) {
	m.safe = true
	p.mu.Lock()
	p.stats.Refused++
	first := p.stats.Refused == 1
	p.mu.Unlock()
	if first { // the log may be heard as events: without the lock
		p.config.Logger.Error("the bus does not take a message: it is lost, and further ones are counted",
			"subject", m.Subject, "bytes", len(m.Data), "error", err)
	}
}

// send fills the window, from the store first.
func (p *Publisher) send(now time.Time) {
	for len(p.window) < most && p.flying < mostBytes {
		room, before := min(piece, most-len(p.window)), len(p.window)
		if p.store != nil && p.store.Unread() > 0 {
			for _, m := range p.store.Next(room) {
				p.put(flying{queued: queued{Message: m}, stored: true, at: now})
			}
		} else {
			for _, m := range p.take(room) {
				p.put(flying{queued: m, at: now})
			}
		}
		if len(p.window) == before {
			return
		}
	}
}

// put sends a message. Where that fails it stays in the window, as the others that are on their way: the link will be lost.
func (p *Publisher) put(f flying) {
	token := p.base + uint64(len(p.window))
	p.window, p.flying = append(p.window, f), p.flying+len(f.Data)
	if p.failure != nil {
		return
	}
	switch err := p.link.send(&f.Message, token); {
	case errors.Is(err, errRefused):
		p.refuse(&p.window[len(p.window)-1], err)
	case err != nil:
		p.failure = err
	}
}

// crowded says that the server is slower than the messages: soon there is no room in memory.
func (p *Publisher) crowded() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.queue) > mostQueued/2 || p.queued > mostQueuedBytes/2
}

// keep puts what waits in memory into the store, while there is one.
func (p *Publisher) keep() {
	if p.store != nil {
		p.retain(p.take(mostQueued))
	}
}

// spill puts what is on its way into the store, before later messages come there: when the link is lost all are read again in their order.
func (p *Publisher) spill() {
	if p.store == nil || p.store.Unread() > 0 { // then later ones are there already
		return
	}
	i := len(p.window)
	for i > 0 && !p.window[i-1].stored {
		i--
	}
	if i == len(p.window) {
		return
	}
	var list []store.Message
	for _, f := range p.window[i:] {
		list = append(list, f.Message)
	}
	kept, err := p.store.Append(list)
	p.failed(err)
	next := p.store.Next(kept) // all that was there before is on its way, too
	for k, m := range next {
		f := &p.window[i+kept-len(next)+k]
		f.block.done()
		f.queued, f.stored = queued{Message: m}, true
	}
}

// retain puts messages into the store. Those that it cannot keep are lost.
func (p *Publisher) retain(all []queued) {
	list := make([]store.Message, len(all))
	for i := range all {
		list[i] = all[i].Message
	}
	for len(list) > 0 {
		kept, err := p.store.Append(list)
		if p.failed(err); err == nil {
			break
		}
		p.mu.Lock()
		p.stats.Failed++
		p.mu.Unlock()
		list = list[kept+1:]
	}
	for i := range all {
		all[i].block.done()
	}
}

// failed tells the log of the first of consecutive errors of the disk.
func (p *Publisher) failed(err error) {
	if err != nil && !p.broken {
		p.config.Logger.Error("messages for the bus cannot be kept on disk", "folder", p.config.Folder, "error", err)
	}
	p.broken = err != nil
}

// count brings the counters up to date.
func (p *Publisher) count() {
	waiting, size, dropped := 0, int64(0), uint64(0)
	for i := range p.window {
		if !p.window[i].stored && !p.window[i].safe {
			waiting++
		}
	}
	if p.store != nil {
		waiting, size, dropped = waiting+p.store.Left(), p.store.Size(), p.store.Dropped
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Waiting, p.stats.Stored, p.stats.Full = waiting, size, dropped
}
