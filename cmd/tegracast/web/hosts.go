// SPDX-License-Identifier: Apache-2.0

package web

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// names are the host names that requests may contain. This stops pages of other sites whose owner has pointed a name to
// this machine (DNS rebinding), because their requests contain that name. An address needs no check, since it did not
// come from a name.
type names struct {
	own         []string
	certificate *tls.Certificate
}

func newNames(a *Access) *names {
	n := &names{own: []string{"localhost"}, certificate: a.Certificate}
	if host, err := os.Hostname(); err == nil {
		n.own = append(n.own, normal(host), normal(host)+".local") // mDNS
	}
	for _, h := range a.Hosts {
		n.own = append(n.own, normal(h))
	}
	return n
}

func normal(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// have reports whether a request's Host is an address or a name of this machine. It also returns true for a request of
// HTTP/1.0 without a Host, which no browser sends.
func (n *names) have(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = normal(strings.Trim(host, "[]"))
	if _, err := netip.ParseAddr(host); err == nil || host == "" || slices.Contains(n.own, host) {
		return true
	}
	return n.certificate != nil && n.certificate.Leaf != nil && n.certificate.Leaf.VerifyHostname(host) == nil
}

// only returns a handler that passes requests for these names to next, and refuses others (RFC 9110 §15.5.20).
func (n *names) only(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !n.have(r.Host) {
			refuseUnread(w, r, fmt.Sprintf("%q is not a name of this machine: ask by its address, or add the name to web.hosts", r.Host),
				http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}
