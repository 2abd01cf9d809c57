// SPDX-License-Identifier: Apache-2.0

// Package guesses limits wrong passwords to ten a minute for each IPv4 address, IPv6 /64 network and local user.
package guesses

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/flood"
)

// LeastPassword is the minimum length of a password in bytes.
const LeastPassword = 12

const (
	most    = 10          // wrong passwords of a client within span before it must wait
	span    = time.Minute // starts at the first wrong password
	clients = 1024        // maximum number of clients remembered
)

// Guesses counts the wrong passwords of the last minute. The zero value is ready to use. Its methods may be called
// concurrently.
type Guesses struct {
	mu     sync.Mutex
	failed map[Client]failures
	log    pipeline.FaultLog
}

// A Client is an address, an IPv6 /64 network, or a local user.
type Client string

// From returns the client that an address counts as: the address itself, or its IPv6 /64 network.
func From(a netip.Addr) Client { return Client(flood.Network(a).String()) }

// Of returns the client at the other end of a connection. On loopback that is the user whose process has connected, if
// known, so that one user cannot make another one wait.
func Of(c net.Conn) Client {
	from, to := endpoint(c.RemoteAddr()), endpoint(c.LocalAddr())
	if from.Addr().IsLoopback() {
		if uid, found := owner(from, to); found {
			return Client(fmt.Sprintf("user %d", uid))
		}
	}
	return From(from.Addr())
}

// IsPerson reports whether the process at the other end of a connection belongs to another person on this machine, and
// not to a service. Services have user numbers below 1000, or systemd's dynamic ones (systemd.exec(5), DynamicUser=).
func IsPerson(c net.Conn) bool {
	uid, found := owner(endpoint(c.RemoteAddr()), endpoint(c.LocalAddr()))
	return found && uid >= 1000 && (uid < 61184 || uid > 65519) && uid != os.Geteuid()
}

// endpoint returns the AddrPort of a TCP address, or the zero AddrPort for any other address.
func endpoint(a net.Addr) netip.AddrPort {
	t, is := a.(*net.TCPAddr)
	if !is {
		return netip.AddrPort{}
	}
	p := t.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}

type failures struct {
	count int
	since time.Time
}

// Wait returns how long a client must wait before it may send a password; 0 means that it need not wait.
func (g *Guesses) Wait(client Client, now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f := g.failed[client]; f.count >= most {
		return max(0, f.since.Add(span).Sub(now))
	}
	return 0
}

// Failed records that a client has sent a wrong password to the service named door, such as "rtsp". It logs that at
// most once a minute. If too many clients are remembered, it forgets those whose minute has passed, and if there are
// still too many, all.
func (g *Guesses) Failed(client Client, door string, now time.Time, log *slog.Logger) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.failed) >= clients {
		for a, f := range g.failed {
			if now.Sub(f.since) > span {
				delete(g.failed, a)
			}
		}
	}
	if g.failed == nil || len(g.failed) >= clients {
		g.failed = map[Client]failures{} // an attack from many addresses; limiting memory is more important
	}
	f := g.failed[client]
	if now.Sub(f.since) > span {
		f = failures{since: now}
	}
	f.count++
	g.failed[client] = f
	if left, due := g.log.Due("", now); due {
		log.Warn(door+": a wrong password", pipeline.Unlogged([]any{"client", client}, left)...)
	}
}

// Site returns the address of a client given as "address:port", or for IPv6 the network within which it can choose
// addresses. For any other text it returns the zero Addr.
func Site(client string) netip.Addr {
	from, err := netip.ParseAddrPort(client)
	if err != nil {
		return netip.Addr{}
	}
	return flood.Network(from.Addr())
}
