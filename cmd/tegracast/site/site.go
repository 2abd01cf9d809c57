// SPDX-License-Identifier: Apache-2.0

// Package site serves the page where the configuration says, and changes that on a reload.
package site

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/tegracast/tegracast/cmd/tegracast/config/readers"
	"github.com/tegracast/tegracast/pipeline/web"
)

// A Server is the server of now, or none.
type Server struct {
	Out    io.Writer              // is told the page's address
	Page   atomic.Pointer[string] // the same; nil: there is none
	Config web.Config             // but for where it listens
	cancel context.CancelFunc     // nil: there is none
	ended  chan struct{}
	now    atomic.Pointer[readers.Web]
}

// Open takes the place of the server that there was.
func (w *Server) Open(ctx context.Context, c readers.Web) error {
	w.Close()
	w.Page.Store(nil)
	w.now.Store(&c)
	server, err := w.listen(c)
	if err != nil || server == nil {
		return err
	}
	if c.TLS() {
		address := "https://" + nameFor(server.Addr())
		w.Page.Store(&address)
		fmt.Fprintf(w.Out, "page: %s (any user; the password is in %s)\n", address, c.PasswordFile)
	} else if page := pageAddress(server.Addr()); page != "" {
		w.Page.Store(&page)
		fmt.Fprintf(w.Out, "page: %s (from another machine: ssh -L 8080:%s HOST, then http://127.0.0.1:8080)\n",
			page, strings.TrimPrefix(page, "http://"))
	}
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

// Now is what the server was opened with last.
func (w *Server) Now() readers.Web {
	if c := w.now.Load(); c != nil {
		return *c
	}
	return readers.Web{}
}

// pageAddress is where a browser of this machine finds the page; empty: nowhere, since the address is not of this machine alone.
func pageAddress(listening net.Addr) string {
	a, ok := listening.(*net.TCPAddr)
	switch {
	case ok && a.IP.IsLoopback():
		return "http://" + a.String()
	case ok && a.IP.IsUnspecified():
		return fmt.Sprintf("http://127.0.0.1:%d", a.Port)
	}
	return ""
}

// nameFor is what other machines call an address of this one, if it is all of them.
func nameFor(listening net.Addr) string {
	a, ok := listening.(*net.TCPAddr)
	name, err := os.Hostname()
	if !ok || !a.IP.IsUnspecified() || err != nil {
		return listening.String()
	}
	return net.JoinHostPort(name, strconv.Itoa(a.Port))
}

// Close ends the server, if there is one.
func (w *Server) Close() {
	if w.cancel != nil {
		w.cancel()
		<-w.ended // ends: cancel has ended its context
		w.cancel = nil
	}
}

// listen takes the address. The default one may be taken by somebody else; one that the configuration names may not.
func (w *Server) listen(c readers.Web) (*web.Server, error) {
	if c.Address() == "" {
		return nil, nil
	}
	cfg := w.Config
	cfg.Listen, cfg.Profile = c.Address(), c.Profile
	if c.Lock {
		cfg.Configurator = nil
	}
	var err error
	if cfg.Access, err = access(c); err != nil {
		return nil, err
	}
	server, err := web.New(cfg)
	switch {
	case err == nil:
		if l, ok := server.Addr().(*net.TCPAddr); ok && !l.IP.IsLoopback() && !c.TLS() {
			w.Config.Logger.Warn("everyone who can reach this address can read metrics and health, and trigger recordings", "listen", server.Addr())
		}
		if cfg.Configurator != nil && cfg.Access == nil && os.Geteuid() == 0 {
			w.Config.Logger.Warn("every user of this machine can change the configuration on the page, and the program runs as root: " +
				"set web.lock_configuration, or web.password_file with its certificate, or run it as another user")
		}
		return server, nil
	case c.Listen == "" && errors.Is(err, syscall.EADDRINUSE):
		w.Config.Logger.Warn("no page and no metrics: another program uses this address: set web.listen to another address, or to none",
			"listen", c.Address())
		return nil, nil
	}
	return nil, fmt.Errorf("web.listen: %w", err)
}

// access is how other machines may look; nil: not at all.
func access(c readers.Web) (*web.Access, error) {
	if !c.TLS() {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(c.Certificate, c.Key)
	if err != nil {
		return nil, fmt.Errorf("web.certificate, web.key: %w", err)
	}
	password, err := readers.Password(c.PasswordFile)
	if err != nil {
		return nil, fmt.Errorf("web.password_file: %w", err)
	}
	return &web.Access{Certificate: pair, Password: password}, nil
}
