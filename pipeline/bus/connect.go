// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"time"
)

// connect dials when there is no link and the time has come.
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
		l, err := dial(dialing, p.config, p.id, lost)
		p.dialed <- dialed{l, err}
	}()
}

// connected takes what dialing came to.
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

// trouble notes why there is no link, tells the log if that is new, and plans the next attempt.
func (p *Publisher) trouble(err error) {
	if !p.told {
		p.config.Logger.Warn("the bus cannot be reached: messages are kept on disk, and it is tried again", "server", p.config.URL, "error", err)
	}
	p.told = true
	p.wait = min(max(2*p.wait, firstRetry), lastRetry)
	p.retry = time.Now().Add(p.wait)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Connected, p.stats.Trouble = false, err.Error()
}

// lose ends the link. What the server has not acknowledged is kept, in its order; with an error another link is made later.
func (p *Publisher) lose(err error) {
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

// settleLast marks what was acknowledged before the link was lost.
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

// back takes the window back: what is in the store is read again, and what is not is put there.
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

// abandon ends an attempt to dial, and waits for it.
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
