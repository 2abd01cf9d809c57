// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/token"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
)

// SocketFile is the name of the page's socket in the service manager's runtime folder.
const SocketFile = "web.sock"

// A Site is the server of the page, whose address and access a reload may change. The zero Site has no server.
type Site struct {
	Out    io.Writer              // the page's address is printed here
	Page   atomic.Pointer[string] // the page's address without a token; nil: no page
	State  string                 // folder of the token; empty: the token is not stored
	Config Config                 // without what the section web of the configuration sets
	token  string                 // empty: not read yet
	cancel context.CancelFunc     // nil: no server
	ended  chan struct{}
	now    atomic.Pointer[config.Web]
}

// Open ends the current server, and starts one as c configures it. It starts none if c has no address, or if the
// default address is in use.
func (w *Site) Open(ctx context.Context, c config.Web) error {
	w.Close()
	w.Page.Store(nil)
	w.now.Store(&c)
	server, err := w.listen(c)
	if err != nil || server == nil {
		return err
	}
	w.announce(c, server.Addr())
	ctx, w.cancel = context.WithCancel(ctx)
	w.ended = make(chan struct{})
	go func(ended chan struct{}) {
		defer close(ended)
		if err := server.Run(ctx); err != nil {
			w.Config.Logger.Error("metrics and health server failed", "error", err)
		}
	}(w.ended)
	return nil
}

// announce prints the page's address. Only a terminal gets the token, because a service's output is in the journal, which
// others can read.
func (w *Site) announce(c config.Web, at net.Addr) {
	page := pageAddress(c, at)
	w.Page.Store(&page)
	switch {
	case terminal.Is(w.Out):
		fmt.Fprintf(w.Out, "page: %s/?token=%s\n", page, w.token)
	case c.PasswordFile != "":
		fmt.Fprintf(w.Out, "page: %s (any user; the password is in %s)\n", page, c.PasswordFile)
	case w.Config.Socket != "":
		fmt.Fprintf(w.Out, "page: %s (from another machine: ssh -L 8080:%s HOST, then http://127.0.0.1:8080)\n", page, w.Config.Socket)
	default:
		fmt.Fprintf(w.Out, "page: %s (its token is in %s)\n", page, filepath.Join(w.State, token.File))
	}
}

// Now returns the configuration of the latest call of Open, or the zero value before the first one.
func (w *Site) Now() config.Web {
	if c := w.now.Load(); c != nil {
		return *c
	}
	return config.Web{}
}

// pageAddress returns the URL of the page of a server that listens on at.
func pageAddress(c config.Web, at net.Addr) string {
	a, is := at.(*net.TCPAddr)
	name := at.String()
	if is && a.IP.IsUnspecified() {
		host := "127.0.0.1"
		if own, err := os.Hostname(); err == nil && c.TLS() {
			host = own
		}
		name = net.JoinHostPort(host, strconv.Itoa(a.Port))
	}
	if c.TLS() {
		return "https://" + name
	}
	return "http://" + name
}

// Close ends the server, if there is one.
func (w *Site) Close() {
	if w.cancel != nil {
		w.cancel()
		<-w.ended // ends: cancel has ended its context
		w.cancel = nil
	}
}

// listen returns a server that has opened the address, or nil if there is no address or if the default one is in use.
// It is an error if an address from the configuration is in use.
func (w *Site) listen(c config.Web) (*Server, error) {
	if c.Address() == "" {
		return nil, nil
	}
	cfg := w.Config
	cfg.listen, cfg.profile = c.Address(), c.Profile
	if c.Lock {
		cfg.Configurator = nil
	}
	if err := w.access(c, &cfg.Access); err != nil {
		return nil, err
	}
	server, err := New(cfg)
	switch {
	case err == nil:
		return server, nil
	case c.Listen == "" && errors.Is(err, syscall.EADDRINUSE):
		w.Config.Logger.Warn("no page and no metrics: another program uses this address: set web.listen to another address, or to none",
			"listen", c.Address())
		return nil, nil
	}
	return nil, fmt.Errorf("web.listen: %w", err)
}

// access fills in the token, and the password, certificate, host names and proxies that c configures.
func (w *Site) access(c config.Web, a *Access) (err error) {
	if w.token == "" {
		if w.token, err = token.Make(w.State); err != nil {
			w.Config.Logger.Warn("the page's token cannot be stored: the next start makes another", "error", err)
		}
	}
	a.Token, a.Hosts, a.TrustedProxies = w.token, c.Hosts, c.Proxies()
	if c.TLS() {
		pair, err := tls.LoadX509KeyPair(c.Certificate, c.Key)
		if err != nil {
			return fmt.Errorf("web.certificate, web.key: %w", err)
		}
		warnExpiry(w.Config.Logger, c.Certificate, pair.Leaf, time.Now())
		a.Certificate = &pair
	}
	if c.PasswordFile != "" {
		if a.Password, err = config.Password(c.PasswordFile); err != nil {
			return fmt.Errorf("web.password_file: %w", err)
		}
	}
	return nil
}

// warnExpiry warns if the certificate in a file expires within 30 days.
func warnExpiry(log *slog.Logger, file string, c *x509.Certificate, now time.Time) {
	if now.AddDate(0, 0, 30).After(c.NotAfter) {
		log.Warn("the page's certificate expires soon, or has expired: renew it (tegracast help config tls)", "file", file, "expires", c.NotAfter)
	}
}
