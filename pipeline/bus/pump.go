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
	most       = 2048                   // maximum number of unacknowledged messages
	mostBytes  = 16 << 20               // maximum bytes of data of the unacknowledged messages
	piece      = 64                     // maximum number of messages taken at a time
	pace       = 10 * time.Millisecond  // shortest time between rounds, so that many messages share one
	manyPace   = 2 * pace               // pace when there are so many messages that the rounds themselves are the cost
	idle       = 250 * time.Millisecond // longest time between rounds
	ackTime    = 10 * time.Second       // time within which a server must acknowledge
	syncTime   = time.Second            // time after which written messages are synced to disk
	lastTime   = time.Second            // maximum time for sending what is left when Run ends
	firstRetry = 500 * time.Millisecond // pause before the first retry; doubles with each attempt
	lastRetry  = 10 * time.Second
)

// pump is the state of the goroutine that moves the messages.
type pump struct {
	store *store.Store // nil if the disk cannot store anything

	link    link // nil if there is none
	number  int  // of the link: losses of earlier ones are ignored
	dialing context.CancelFunc
	retry   time.Time
	wait    time.Duration
	good    bool // a message has been acknowledged on this link
	told    bool // that the bus cannot be reached has been logged

	unwatched int // links lost in a row because of watch; at mostUnwatched it is not called any more

	window  []flying // messages in flight, in the order of sending
	flying  int      // bytes of data in window
	base    uint64   // token of window[0]
	failure error    // error of sending, because of which the link will be dropped
	taken   []queued
	synced  time.Time
	rounded time.Time // time of the last round
	broken  bool      // the disk has failed, and that has been logged
}

// flying is a message that the server has not acknowledged, or one that waits for an earlier message to be
// acknowledged.
type flying struct {
	queued
	stored bool      // also in the store
	safe   bool      // acknowledged or refused
	at     time.Time // when it was sent
}

// A loss reports the end of a link.
type loss struct {
	link int
	err  error
}

type dialed struct {
	link link
	err  error
}

func (p *Publisher) work(ctx context.Context) {
	tick := time.NewTicker(idle)
	defer tick.Stop()
	for {
		if len(p.window) == 0 { // otherwise acknowledgements are due, which wake nobody
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

// flush continues to publish until the server has acknowledged everything, ctx ends, or there is no link.
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

// round processes acknowledgements and sends as many messages as the window allows.
func (p *Publisher) round(now time.Time) {
	p.settle()
	held := now.Sub(p.rounded) > syncTime // by the disk, or because the process was stopped: what arrived in the meantime is read after this round
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

// settle processes the acknowledgements, and drops the link if it was lost.
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
			case i >= uint64(len(p.window)) || p.window[i].safe: // already acknowledged
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
		if l.link == p.number && p.link == nil { // the link was lost before connected took it over
			return false
		}
		if l.link == p.number {
			lost = l.err
		}
		return true
	})
	p.mu.Unlock()
	if published > 0 && !p.good { // not on connecting: a server may accept a client and yet not take its messages
		p.good, p.told, p.wait = true, false, 0
		p.config.Logger.Info("the bus accepts messages", "server", p.config.URL)
		if p.link != nil && p.unwatched < mostUnwatched {
			p.link.watch()
		}
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

// refuse counts as lost a message that the server will never accept.
func (p *Publisher) refuse(m *flying, err error) {
	m.safe = true
	p.mu.Lock()
	p.stats.Refused++
	first := p.stats.Refused == 1
	p.mu.Unlock()
	if first { // without the lock: log records may be published as events
		p.config.Logger.Error("the bus refuses a message: it is lost, and further ones are counted",
			"subject", m.Subject, "bytes", len(m.Data), "error", err)
	}
}

// send fills the window, with messages from the store first.
func (p *Publisher) send(now time.Time) {
	for len(p.window) < most && p.flying < mostBytes {
		room, before := min(piece, most-len(p.window)), len(p.window)
		if p.store != nil && p.store.Unread() > 0 {
			for _, m := range p.store.Next(room) {
				p.sendMessage(flying{queued: queued{Message: m}, stored: true, at: now})
			}
		} else {
			for _, m := range p.takeQueued(room) {
				p.sendMessage(flying{queued: m, at: now})
			}
		}
		if len(p.window) == before {
			return
		}
	}
}

// sendMessage adds a message to the window, and sends it unless sending has failed before. If sending fails, the link
// will be dropped, and the message stays in the window like the others in flight. A message that the link refuses is
// counted as lost.
func (p *Publisher) sendMessage(f flying) {
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

// crowded reports whether more than half of the room for messages in memory is used, because the server is slow.
func (p *Publisher) crowded() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.queue) > mostQueued/2 || p.queued > mostQueuedBytes/2
}

// keep moves the messages that wait in memory to the store, if there is one.
func (p *Publisher) keep() {
	if p.store != nil {
		p.retain(p.takeQueued(mostQueued))
	}
}

// spill stores the messages in flight before later messages go to the store. If the link is lost, all are then read
// again in order.
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
	next := p.store.Next(kept) // everything stored earlier is in flight too
	for k, m := range next {
		f := &p.window[i+kept-len(next)+k]
		f.block.done()
		f.queued, f.stored = queued{Message: m}, true
	}
}

// retain stores messages. Those that the disk cannot store are lost.
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

// failed logs the first of consecutive disk errors.
func (p *Publisher) failed(err error) {
	if err != nil && !p.broken {
		p.config.Logger.Error("messages for the bus cannot be kept on disk", "folder", p.config.Folder, "error", err)
	}
	p.broken = err != nil
}

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
