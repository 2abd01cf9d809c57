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
	"strings"
	"time"

	"github.com/tegracast/tegracast/pipeline/guesses"
)

// ErrAccess means that other machines cannot be given access so.
var ErrAccess = errors.New("web: access for other machines")

// Access is for clients of other machines, and for those of this one that do not name it as such: they come by TLS and say the password.
type Access struct {
	Certificate tls.Certificate
	Password    string // by HTTP's Basic, with any user, or as a Bearer token
}

const leastPassword = 12 // bytes

// door knows the password, and who has said wrong ones.
type door struct {
	password [sha256.Size]byte
	guesses  guesses.Guesses
	log      *slog.Logger
}

func newDoor(a *Access, log *slog.Logger) (*door, error) {
	switch {
	case len(a.Password) < leastPassword:
		return nil, fmt.Errorf("%w: the password has %d characters: use at least %d", ErrAccess, len(a.Password), leastPassword)
	case len(a.Certificate.Certificate) == 0:
		return nil, fmt.Errorf("%w: there is no certificate", ErrAccess)
	}
	return &door{password: sha256.Sum256([]byte(a.Password)), log: log}, nil
}

// listen has clients talk TLS.
func (a *Access) listen(l net.Listener) net.Listener {
	return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{a.Certificate}, MinVersion: tls.VersionTLS12})
}

// admits says whether a request has the password. If not, it has been answered.
func (d *door) admits(w http.ResponseWriter, r *http.Request) bool {
	if wait := d.guesses.Wait(r.RemoteAddr, time.Now()); wait > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(int(wait/time.Second)+1))
		http.Error(w, "too many wrong passwords came from this address: wait a minute", http.StatusTooManyRequests)
		return false
	}
	password, said := saidPassword(r)
	if sum := sha256.Sum256([]byte(password)); said && subtle.ConstantTimeCompare(sum[:], d.password[:]) == 1 {
		return true
	}
	if said {
		d.guesses.Failed(r.RemoteAddr, "web", time.Now(), d.log)
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
