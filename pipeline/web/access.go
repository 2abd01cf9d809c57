// SPDX-License-Identifier: Apache-2.0

package web

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// ErrAccess means that other machines cannot be given access so.
var ErrAccess = errors.New("web: access for other machines")

// Access is for clients of other machines, and for those of this one that do not name it as such: they come by TLS and say the password.
type Access struct {
	Certificate tls.Certificate
	Password    string // by HTTP's Basic, with any user, or as a Bearer token
}

const (
	leastPassword = 12          // bytes
	maxFailures   = 10          // wrong passwords of an address in failureSpan; then it has to wait
	failureSpan   = time.Minute // from the first one on
	maxFailing    = 1024        // addresses that are remembered
	siteBits      = 64          // of an IPv6 address: one client has all addresses behind them
)

// door knows the password, and who has said wrong ones.
type door struct {
	password [sha256.Size]byte
	mu       sync.Mutex
	failed   map[netip.Addr]failures
}

type failures struct {
	count int
	since time.Time
}

func newDoor(a *Access) (*door, error) {
	switch {
	case len(a.Password) < leastPassword:
		return nil, fmt.Errorf("%w: the password has %d characters: use at least %d", ErrAccess, len(a.Password), leastPassword)
	case len(a.Certificate.Certificate) == 0:
		return nil, fmt.Errorf("%w: there is no certificate", ErrAccess)
	}
	return &door{password: sha256.Sum256([]byte(a.Password)), failed: map[netip.Addr]failures{}}, nil
}

// listen has clients talk TLS.
func (a *Access) listen(l net.Listener) net.Listener {
	return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{a.Certificate}, MinVersion: tls.VersionTLS12})
}

// admits says whether a request has the password. If not, it has been answered.
func (d *door) admits(w http.ResponseWriter, r *http.Request) bool {
	from := site(r.RemoteAddr)
	if wait := d.wait(from, time.Now()); wait > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(int(wait/time.Second)+1))
		http.Error(w, "too many wrong passwords came from this address: wait a minute", http.StatusTooManyRequests)
		return false
	}
	password, said := saidPassword(r)
	if sum := sha256.Sum256([]byte(password)); said && subtle.ConstantTimeCompare(sum[:], d.password[:]) == 1 {
		return true
	}
	if said {
		d.fails(from, time.Now())
	}
	w.Header().Set("WWW-Authenticate", `Basic realm="tegracast", charset="UTF-8"`)
	http.Error(w, "the password is missing or wrong", http.StatusUnauthorized)
	return false
}

// saidPassword is what a request says in its Authorization header (RFC 7617, RFC 6750 §2.1).
func saidPassword(r *http.Request) (password string, said bool) {
	if _, password, said := r.BasicAuth(); said {
		return password, true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return token, strings.EqualFold(scheme, "Bearer")
}

// site is the address of a client, or the network that it can choose addresses of.
func site(remote string) netip.Addr {
	from, err := netip.ParseAddrPort(remote)
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

// wait is how long an address has to wait before it may say a password.
func (d *door) wait(from netip.Addr, now time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.failed[from]; f.count >= maxFailures {
		return f.since.Add(failureSpan).Sub(now)
	}
	return 0
}

// fails remembers a wrong password.
func (d *door) fails(from netip.Addr, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.failed) >= maxFailing {
		for a, f := range d.failed {
			if now.Sub(f.since) > failureSpan {
				delete(d.failed, a)
			}
		}
	}
	if len(d.failed) >= maxFailing {
		clear(d.failed) // an attack from many addresses: memory counts for more
	}
	f := d.failed[from]
	if now.Sub(f.since) > failureSpan {
		f = failures{since: now}
	}
	f.count++
	d.failed[from] = f
}
