// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"errors"
	"time"
)

// connect starts dialing if there is no link and the time for another attempt has come.
func (p *Publisher) connect(ctx context.Context) {
	if p.link != nil || p.dialing != nil || time.Now().Before(p.retry) {
		return
	}
	p.number++
	number := p.number
	lost := func(err error) {
		p.mu.Lock()
		p.losses = append(p.losses, loss{number, err})
		p.mu.Unlock()
		p.stir()
	}
	dialing, cancel := context.WithTimeout(ctx, dialTime)
	p.dialing = cancel
	go func() {
		l, err := dial(dialing, p.config, p.id, calls{lost, p.see})
		p.dialed <- dialed{l, err}
	}()
}

// connected handles the result of dialing.
func (p *Publisher) connected(d dialed) {
	p.dialing()
	p.dialing = nil
	if d.err != nil {
		p.trouble(d.err)
		return
	}
	p.link, p.good = d.link, false
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Connected, p.stats.Trouble = true, ""
	p.stats.Links++
}

// trouble records why there is no link, logs it if the log does not say so already, and schedules the next attempt.
func (p *Publisher) trouble(err error) {
	if !p.told {
		p.config.Logger.Warn("the bus cannot be reached: messages are kept on disk, and the connection is tried again", "server", p.config.URL, "error", err)
	}
	p.told = true
	p.wait = min(max(2*p.wait, firstRetry), lastRetry)
	p.retry = time.Now().Add(p.wait)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Connected, p.stats.Trouble = false, err.Error()
}

// lose drops the link. Messages that the server has not acknowledged are kept, in order. If err is not nil, another
// attempt to connect is scheduled.
func (p *Publisher) lose(err error) {
	switch {
	case errors.Is(err, errUnwatched):
		p.unwatched++
	case err != nil && p.unwatched < mostUnwatched: // the earlier one was by chance
		p.unwatched = 0
	}
	if p.link != nil {
		p.settleLast()
		old := p.link
		p.link = nil
		p.number++
		go old.close() // it may wait for the network
		p.back()
	}
	if err != nil {
		p.trouble(err)
	}
}

// settleLast processes the acknowledgements that arrived before the link was lost.
func (p *Publisher) settleLast() {
	published := uint64(0)
	p.link.heard(func(token uint64, err error) {
		if i := token - p.base; err == nil && i < uint64(len(p.window)) && !p.window[i].safe {
			p.window[i].safe = true
			published++
		}
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Published += published
	p.losses = nil
}

// back empties the window. Of its unacknowledged messages, the stored ones will be read from the store again; the
// others go to the store or, if there is none, back to the queue.
func (p *Publisher) back() {
	var list []queued
	for i := range p.window {
		if f := &p.window[i]; f.safe {
			f.block.done()
		} else if !f.stored {
			list = append(list, f.queued)
		}
	}
	p.base += uint64(len(p.window))
	p.window, p.flying = nil, 0
	if p.store != nil {
		p.store.Rewind()
		p.retain(list)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range list {
		p.queued += len(list[i].Data)
	}
	p.queue = append(list, p.queue...)
}

// abandon cancels an attempt to dial, if there is one, and waits for it to end.
func (p *Publisher) abandon() {
	if p.dialing == nil {
		return
	}
	p.dialing()
	if d := <-p.dialed; d.err == nil { // ends: dialing has ended its context
		d.link.close()
	}
	p.dialing = nil
}
