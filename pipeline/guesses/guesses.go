// SPDX-License-Identifier: Apache-2.0

// Package guesses limits how often an address may say a wrong password.
package guesses

import (
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

const (
	most      = 10          // wrong passwords of an address in span; then it has to wait
	span      = time.Minute // from the first one on
	addresses = 1024        // that are remembered
	siteBits  = 64          // of an IPv6 address: one client has all addresses behind them
)

// Guesses are the wrong passwords of the last minute. The zero value has none. Its methods may be called concurrently.
type Guesses struct {
	mu     sync.Mutex
	failed map[netip.Addr]failures
	log    pipeline.FaultLog
}

type failures struct {
	count int
	since time.Time
}

// Wait returns how long a client ("address:port") has to wait before it may say a password; 0: it may do so now.
func (g *Guesses) Wait(client string, now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f := g.failed[Site(client)]; f.count >= most {
		return max(0, f.since.Add(span).Sub(now))
	}
	return 0
}

// Failed notes that a client has said a wrong password at a door, such as "rtsp". The log is told once a minute.
func (g *Guesses) Failed(client, door string, now time.Time, log *slog.Logger) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.failed) >= addresses {
		for a, f := range g.failed {
			if now.Sub(f.since) > span {
				delete(g.failed, a)
			}
		}
	}
	if g.failed == nil || len(g.failed) >= addresses {
		g.failed = map[netip.Addr]failures{} // an attack from many addresses: memory counts for more
	}
	site := Site(client)
	f := g.failed[site]
	if now.Sub(f.since) > span {
		f = failures{since: now}
	}
	f.count++
	g.failed[site] = f
	if left, due := g.log.Due("", now); due {
		log.Warn(door+": a wrong password", pipeline.Unlogged([]any{"client", client}, left)...)
	}
}

// Site is the address of a client ("address:port"), or the network in which it can choose addresses.
func Site(client string) netip.Addr {
	from, err := netip.ParseAddrPort(client)
	if err != nil {
		return netip.Addr{}
	}
	a := from.Addr().Unmap().WithZone("")
	if a.Is6() {
		p, _ := a.Prefix(siteBits)
		return p.Addr()
	}
	return a
}
