// SPDX-License-Identifier: Apache-2.0

package rtsp

import (
	"crypto/md5" //nolint:gosec // players know nothing else
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"hash"
	"strings"
)

// algorithm is a hash of digest authentication (RFC 7616 §6.1).
type algorithm struct {
	name string
	hash func() hash.Hash
}

// sum returns a hash in lower-case hexadecimal.
func (a algorithm) sum(s string) string {
	h := a.hash()
	h.Write([]byte(s))
	return hex.EncodeToString(h.Sum(nil))
}

// algorithms are in the order of preference. Of several challenges, players that know only MD5 use the last one.
var algorithms = []algorithm{{"SHA-256", sha256.New}, {"MD5", md5.New}}

// digest authenticates the client of a connection (RFC 7616 §3).
type digest struct {
	realm, nonce string
}

func newDigest() digest { return digest{"tegracast", strings.ToLower(rand.Text())} }

// challenges returns the values of WWW-Authenticate. stale means that the password was right, but the nonce was not
// this connection's.
func (d digest) challenges(stale bool) (list []string) {
	end := ""
	if stale {
		end = ", stale=true"
	}
	for _, a := range algorithms {
		list = append(list, fmt.Sprintf(`Digest realm="%s", nonce="%s", algorithm=%s, qop="auth"%s`, d.realm, d.nonce, a.name, end))
	}
	return list
}

// verdict is the result of the check of a request's credentials.
type verdict int

const (
	noCredentials verdict = iota // none, or by a scheme that is not offered
	wrongCredentials
	staleCredentials // right for another nonce
	rightCredentials
)

// check checks the value of an Authorization header. names reports whether a URI denotes what the request asks for.
func (d digest) check(authorization, method, user, password string, names func(uri string) bool) verdict {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(authorization), " ")
	if !strings.EqualFold(scheme, "Digest") {
		return noCredentials
	}
	p, ok := parameters(rest)
	if !ok {
		return wrongCredentials
	}
	sum := func(string) string { return "" }
	for _, a := range algorithms {
		if strings.EqualFold(p["algorithm"], a.name) || p["algorithm"] == "" && a.name == "MD5" {
			sum = a.sum
		}
	}
	middle := p["nonce"]
	switch p["qop"] {
	case "auth":
		middle += ":" + p["nc"] + ":" + p["cnonce"] + ":auth"
	case "": // RFC 2069
	default:
		return wrongCredentials
	}
	want := sum(sum(user+":"+d.realm+":"+password) + ":" + middle + ":" + sum(method+":"+p["uri"]))
	switch {
	case want == "" || p["username"] != user || p["realm"] != d.realm || !names(p["uri"]),
		subtle.ConstantTimeCompare([]byte(want), []byte(strings.ToLower(p["response"]))) != 1:
		return wrongCredentials
	case p["nonce"] != d.nonce:
		return staleCredentials
	}
	return rightCredentials
}

// parameters parses the parameters of an Authorization header: names with tokens or quoted strings, after commas (RFC
// 9110 §11.2). The names are in lower case.
func parameters(s string) (p map[string]string, ok bool) {
	p = map[string]string{}
	for s = strings.TrimLeft(s, " \t,"); s != ""; s = strings.TrimLeft(s, " \t,") {
		name, rest, found := strings.Cut(s, "=")
		if !found {
			return nil, false
		}
		var value string
		if rest = strings.TrimLeft(rest, " \t"); strings.HasPrefix(rest, `"`) {
			if value, s, found = unquote(rest[1:]); !found {
				return nil, false
			}
		} else {
			value, s, _ = strings.Cut(rest, ",")
		}
		p[strings.ToLower(strings.TrimSpace(name))] = strings.TrimSpace(value)
	}
	return p, true
}

// unquote returns the text of s up to the closing quotation mark, with backslash escapes resolved, and what follows the
// mark. s begins after the opening mark. found is false if there is no closing mark.
func unquote(s string) (text, rest string, found bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			return b.String(), s[i+1:], true
		case s[i] == '\\' && i+1 < len(s):
			i++
		}
		b.WriteByte(s[i])
	}
	return "", "", false
}
