// SPDX-License-Identifier: Apache-2.0

package appliance

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

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tegracast/tegracast/board"
	"github.com/tegracast/tegracast/cmd/tegracast/boardwatch"
	"github.com/tegracast/tegracast/cmd/tegracast/config/readers"
	"github.com/tegracast/tegracast/cmd/tegracast/lines"
	"github.com/tegracast/tegracast/cmd/tegracast/telemetry"
	"github.com/tegracast/tegracast/pipeline/record"
	"github.com/tegracast/tegracast/pipeline/web"
)

// webRunner is the server of now.
type webRunner struct {
	out    io.Writer
	page   atomic.Pointer[string] // its address; nil: there is none
	cfg    web.Config             // but for where it listens
	cancel context.CancelFunc     // nil: there is none
	ended  chan struct{}
}

// open takes the place of the server that there was.
func (w *webRunner) open(ctx context.Context, c readers.Web) error {
	w.close()
	w.page.Store(nil)
	server, err := w.listen(c)
	if err != nil || server == nil {
		return err
	}
	if c.TLS() {
		address := "https://" + nameFor(server.Addr())
		w.page.Store(&address)
		fmt.Fprintf(w.out, "page: %s (any user; the password is in %s)\n", address, c.PasswordFile)
	} else if page := pageAddress(server.Addr()); page != "" {
		w.page.Store(&page)
		fmt.Fprintf(w.out, "page: %s (from another machine: ssh -L 8080:%s HOST, then http://127.0.0.1:8080)\n",
			page, strings.TrimPrefix(page, "http://"))
	}
	ctx, w.cancel = context.WithCancel(ctx)
	w.ended = make(chan struct{})
	go func(ended chan struct{}) {
		defer close(ended)
		if err := server.Run(ctx); err != nil {
			w.cfg.Logger.Error("metrics and health server failed", "error", err)
		}
	}(w.ended)
	return nil
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

func (w *webRunner) close() {
	if w.cancel != nil {
		w.cancel()
		<-w.ended
		w.cancel = nil
	}
}

// listen takes the address. The default one may be taken by somebody else; one that the configuration names may not.
func (w *webRunner) listen(c readers.Web) (*web.Server, error) {
	if c.Address() == "" {
		return nil, nil
	}
	cfg := w.cfg
	cfg.Listen, cfg.Profile = c.Address(), c.Profile
	var err error
	if cfg.Access, err = access(c); err != nil {
		return nil, err
	}
	server, err := web.New(cfg)
	switch {
	case err == nil:
		if l, ok := server.Addr().(*net.TCPAddr); ok && !l.IP.IsLoopback() && !c.TLS() {
			w.cfg.Logger.Warn("everyone who can reach this address can read metrics and health, and trigger recordings", "listen", server.Addr())
		}
		return server, nil
	case c.Listen == "" && errors.Is(err, syscall.EADDRINUSE):
		w.cfg.Logger.Warn("no page and no metrics: another program uses this address: set web.listen to another address, or to none",
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

// newWeb is a server that tells of the appliance.
func newWeb(a *Appliance, h *health) *webRunner {
	own := []prometheus.Collector{
		a.egress, &boardwatch.Metrics{Root: os.DirFS("/")}, &lines.Metrics{Lines: a.lines}, &hardwareMetrics{a}, &a.fanout, &a.shares, a.env.Bus,
	}
	trigger := func(output, cause string) (bool, error) {
		return a.recordings.Trigger(output, record.Trigger{Cause: cause})
	}
	return &webRunner{out: a.env.Out, cfg: web.Config{
		Version: a.env.Version, Stats: a.stats, Health: h.state, Outputs: a.list, Board: sensors, Bus: a.env.Bus.View,
		View: a.look, SDP: a.describe, Trigger: trigger, Send: a.egress.Send, Unsend: a.egress.Unsend, WHEP: a.egress.WHEP(),
		Metrics: append(own, a.env.Metrics...), Events: a.env.Events, Logger: a.env.Log,
	}}
}

// told is what the bus tells of the appliance.
func (a *Appliance) told(h *health) telemetry.Appliance {
	return telemetry.Appliance{
		Version: a.env.Version, Model: board.Identify(os.DirFS("/")).Model, Stats: a.stats, Health: h.state, Outputs: a.list, Sensors: sensors,
	}
}

// sensors are the temperatures of the board and the power of its rails.
func sensors() (list []web.Reading) {
	root := os.DirFS("/")
	for _, z := range board.Zones(root) {
		list = append(list, web.Reading{Name: z.Name, Value: z.Celsius, Unit: "°C"})
	}
	for _, r := range board.Rails(root) {
		list = append(list, web.Reading{Name: r.Name, Value: r.Volts * r.Amps, Unit: "W", Alarm: r.Alarm})
	}
	return list
}
