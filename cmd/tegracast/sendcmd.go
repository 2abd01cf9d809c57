// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/command"
	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/config/readers"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

const sendUsage = `Usage: tegracast send OUTPUT HOST:PORT [--stop] [--config FILE]

Has the serve that runs on this machine send the RTP stream OUTPUT to one more
receiver, until --stop, or until serve ends or restarts the output. Prints the
stream's description (SDP), which the receiver needs:

  tegracast send raw 192.0.2.7:5004 > raw.sdp

On 192.0.2.7, with that file: ffplay -protocol_whitelist file,udp,rtp raw.sdp
To keep a destination, write it into the configuration. PORT is even; RTCP takes
the next one. docs/watch.md has other players, and what a firewall must let in.

Status 1 when no serve answers, or when it refuses.
`

func sendCommand(ctx context.Context, e env, args []string) error {
	f := e.flags("send", sendUsage)
	stop := f.Bool("stop", false, "send the stream to HOST:PORT no longer")
	path := f.String("config", "", "the configuration `FILE` that serve runs with (default \"/etc/tegracast/tegracast.yaml\", if it is there)")
	if err := parseOptions(f, args); err != nil {
		return err
	}
	if f.NArg() != 2 {
		return command.UsageError{Err: errors.New("name an output and a receiver, such as raw 192.0.2.7:5004: try tegracast send --help")}
	}
	name, to := f.Arg(0), f.Arg(1)
	if err := send.CheckDestination(to); err != nil {
		return command.UsageError{Err: err}
	}
	if *path == "" && there(installedConfig) {
		*path = installedConfig
	}
	c, err := config.Load(*path)
	if err != nil {
		return err
	}
	ask, err := newAsker(c.Web)
	if err != nil {
		return err
	}
	method := http.MethodPut
	if *stop {
		method = http.MethodDelete
	}
	sdp, err := ask.do(ctx, method, "/api/v1/outputs/"+url.PathEscape(name)+"/destinations/"+url.PathEscape(to))
	if err != nil {
		return err
	}
	if !*stop {
		_, err = e.Out.Write(sdp)
	}
	return err
}

// asker asks the serve of this machine.
type asker struct {
	base     string // of its addresses
	password string
	client   http.Client
}

var errNoServer = errors.New("the configuration has no page (web.listen: none), by which serve could be asked: give it one, " +
	"or write the destination into the configuration")

func newAsker(w readers.Web) (*asker, error) {
	if w.Address() == "" {
		return nil, errNoServer
	}
	at, err := netip.ParseAddrPort(w.Address())
	if err != nil {
		return nil, err // it has been checked
	}
	if at.Addr().IsUnspecified() {
		at = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), at.Port())
	}
	a := &asker{base: "http://" + at.String(), client: http.Client{Timeout: 10 * time.Second}}
	if !w.TLS() {
		return a, nil
	}
	a.base = "https://" + at.String()
	a.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true, // the certificate is the file's own, which need not name this address
		VerifyConnection: func(s tls.ConnectionState) error {
			pair, err := tls.LoadX509KeyPair(w.Certificate, w.Key)
			if err == nil && !bytes.Equal(pair.Certificate[0], s.PeerCertificates[0].Raw) {
				err = fmt.Errorf("whoever answers has another certificate than %s", w.Certificate)
			}
			return err
		},
	}}
	if !at.Addr().IsLoopback() {
		a.password, err = readers.Password(w.PasswordFile)
	}
	return a, err
}

// do makes a request, and returns the answer, or the error that it is.
func (a *asker) do(ctx context.Context, method, path string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, a.base+path, nil)
	if err != nil {
		return nil, err
	}
	if a.password != "" {
		r.SetBasicAuth("tegracast", a.password)
	}
	answer, err := a.client.Do(r)
	var network *net.OpError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("nobody answers at %s: is serve running, with this configuration? See systemctl status tegracast", a.base)
	case errors.As(err, &network):
		return nil, fmt.Errorf("%s: %w", a.base, network)
	case err != nil:
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.base, err)
	}
	if answer.StatusCode >= http.StatusBadRequest {
		return nil, fmt.Errorf("serve refuses: %s", cmp.Or(strings.TrimSpace(string(text)), answer.Status))
	}
	return text, nil
}
