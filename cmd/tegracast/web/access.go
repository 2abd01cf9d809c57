// SPDX-License-Identifier: Apache-2.0

package web

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/tegracast/tegracast/pipeline/guesses"
)

// ErrAccess means that the access settings do not allow serving at an address.
var ErrAccess = errors.New("web: access")

// Access defines what clients need for everything but health and metrics: the token or the password. If both are empty,
// only clients of the socket are admitted.
type Access struct {
	Token          string           // in a cookie, as parameter "token" of a URL, or in place of the password
	Password       string           // by HTTP Basic authentication with any user, or as a Bearer token
	Certificate    *tls.Certificate // nil: no TLS, and only this machine and trusted proxies may connect
	Hosts          []string         // names by which clients may address the server, in addition to this machine's own
	TrustedProxies []netip.Prefix   // proxies whose X-Forwarded-For is trusted
	Guesses        *guesses.Guesses // counts wrong passwords at all servers of the process; nil: at this server alone
}

// check refuses settings that are unsafe for an address.
func (a *Access) check(listen net.Addr) error {
	switch at, is := listen.(*net.TCPAddr); {
	case a.Password != "" && len(a.Password) < guesses.LeastPassword:
		return fmt.Errorf("%w: the password has %d characters: use at least %d", ErrAccess, len(a.Password), guesses.LeastPassword)
	case a.Certificate == nil && is && !at.IP.IsLoopback() && (len(a.TrustedProxies) == 0 || a.Password == ""):
		return fmt.Errorf("%w: others can reach %s: without a certificate it needs trusted proxies and a password", ErrAccess, listen)
	}
	return nil
}

// secure wraps a listener with TLS if there is a certificate.
func (a *Access) secure(l net.Listener) net.Listener {
	if a.Certificate == nil {
		return l
	}
	return tls.NewListener(l, &tls.Config{
		Certificates: []tls.Certificate{*a.Certificate}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
	})
}

// door authenticates clients: it admits requests that have a key, which is the token or the password, and counts wrong
// passwords.
type door struct {
	*Access
	names  *names
	cookie string // the cookie's name
	log    *slog.Logger
}

// A peer is the other end of a connection.
type peer struct {
	conn     net.Conn
	address  netip.Addr            // address of the other end; the zero Addr for a client of Config.Socket
	admitted bool                  // it is a client of the socket, which checks its clients itself
	client   func() guesses.Client // returns the client for which wrong passwords are counted
	person   func() bool           // reports whether it belongs to a person on this machine, not to a service
}

// trusts reports whether an address belongs to a trusted proxy.
func (a *Access) trusts(address netip.Addr) bool {
	for _, p := range a.TrustedProxies {
		if p.Contains(address) {
			return true
		}
	}
	return false
}

// client returns the client of a request: the peer, or behind a trusted proxy the last address in X-Forwarded-For that
// is not a trusted proxy, or is a loopback address. If none is found before an invalid element, it is the peer. People
// on a proxy's machine can connect from its address as well as through it, so their X-Forwarded-For is ignored.
func (a *Access) client(p *peer, r *http.Request) guesses.Client {
	if !a.trusts(p.address) || p.person() {
		return p.client()
	}
	list := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(list) - 1; i >= 0; i-- {
		address, err := parseForwarded(list[i])
		if err != nil {
			break
		}
		if !a.trusts(address) || address.IsLoopback() {
			return guesses.From(address)
		}
	}
	return p.client()
}

// parseForwarded parses one element of X-Forwarded-For: an address, to which some proxies add a port.
func parseForwarded(text string) (netip.Addr, error) {
	text = strings.TrimSpace(text)
	if withPort, err := netip.ParseAddrPort(text); err == nil {
		return withPort.Addr().Unmap(), nil
	}
	a, err := netip.ParseAddr(strings.Trim(text, "[]"))
	return a.Unmap(), err
}

// private returns a handler that passes requests to next if admits returns true, and refuses those that a page of
// another site makes a browser send.
func (d *door) private(next http.Handler) http.Handler {
	own := http.NewCrossOriginProtection().Handler(next) // a page of another site must not use a browser that has a key
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'self'; img-src 'self' blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		h.Set("Referrer-Policy", "no-referrer") // a URL may contain the token
		if d.admits(w, r) {
			own.ServeHTTP(w, r)
		}
	})
}

// admits authenticates a request: it reports whether the request has a key, the token or the password, or came through
// the socket. If not, it answers the request with an error. It also does so if a client that is neither on this machine
// nor a trusted proxy connects without TLS, and for any password after too many wrong ones.
func (d *door) admits(w http.ResponseWriter, r *http.Request) bool {
	p := peerOf(r)
	if p.admitted {
		return true
	}
	if d.Certificate == nil && !p.address.IsLoopback() && !d.trusts(p.address) {
		refuseUnread(w, r, "only this machine and trusted proxies are let in without TLS: see web.certificate and web.trusted_proxies",
			http.StatusForbidden)
		return false
	}
	password, said := saidPassword(r)
	if d.hasToken(w, r, password) {
		return true
	}
	if d.Password == "" {
		said = false // guessing is impossible: a token has 128 bits
	}
	if said {
		client, now := d.client(p, r), time.Now()
		if wait := d.Guesses.Wait(client, now); wait > 0 {
			w.Header().Set("Retry-After", fmt.Sprint(int(wait/time.Second)+1))
			refuseUnread(w, r, "too many wrong passwords came from this address: wait a minute", http.StatusTooManyRequests)
			return false
		}
		if equal(password, d.Password) {
			return true
		}
		d.Guesses.Failed(client, "web", now, d.log)
	}
	w.Header().Set("WWW-Authenticate", `Basic realm="tegracast, any user", charset="UTF-8"`)
	refuseUnread(w, r, "the password or the token is missing or wrong: serve prints the page's address with the token on a terminal, "+
		"and keeps the token in the file web.token of its state folder", http.StatusUnauthorized)
	return false
}

// hasToken reports whether a request has the token. said is the password or token in the Authorization header. A
// browser that sends the token in the URL gets it as a cookie (RFC 6265bis §4.1.2).
func (d *door) hasToken(w http.ResponseWriter, r *http.Request, said string) bool {
	if d.Token == "" {
		return false
	}
	if equal(said, d.Token) {
		return true
	}
	for _, c := range r.CookiesNamed(d.cookie) {
		if equal(c.Value, d.Token) {
			return true
		}
	}
	if !equal(r.URL.Query().Get("token"), d.Token) {
		return false
	}
	http.SetCookie(w, &http.Cookie{
		Name: d.cookie, Value: d.Token, Path: "/", MaxAge: cookieDays * 24 * 60 * 60,
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: r.TLS != nil,
	})
	return true
}

const cookieDays = 30

// cookieName returns a name that depends on the port, because browsers send cookies to all ports of a host (RFC 6265
// §8.5).
func cookieName(listen net.Addr) string {
	_, port, _ := net.SplitHostPort(listen.String())
	return "tegracast_" + port
}

// equal compares in constant time, so that the time reveals nothing about the secret.
func equal(said, secret string) bool {
	a, b := sha256.Sum256([]byte(said)), sha256.Sum256([]byte(secret))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// saidPassword returns the password or token in a request's Authorization header (RFC 7617, RFC 6750 §2.1).
func saidPassword(r *http.Request) (password string, said bool) {
	if _, password, said := r.BasicAuth(); said {
		return password, true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return token, strings.EqualFold(scheme, "Bearer")
}
