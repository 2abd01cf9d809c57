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

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/cmd/tegracast/web"
	"github.com/tegracast/tegracast/pipeline/printable"
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
	stop := f.Bool("stop", false, "stop sending the stream to HOST:PORT")
	path := f.String("config", "", "the configuration `FILE` that serve runs with (default \"/etc/tegracast/tegracast.yaml\", if it exists)")
	if err := parseOptions(f, args); err != nil {
		return err
	}
	if f.NArg() != 2 {
		return terminal.UsageError{Err: errors.New("name an output and a receiver, such as raw 192.0.2.7:5004: try tegracast send --help")}
	}
	name, to := f.Arg(0), f.Arg(1)
	if err := send.CheckDestination(to); err != nil {
		return terminal.UsageError{Err: err}
	}
	if *path == "" && there(installedConfig) {
		*path = installedConfig
	}
	installed := *path == installedConfig
	c, err := config.Load(*path)
	if err != nil {
		return err
	}
	ask, err := newAsker(c.Web, installed)
	if err != nil {
		return err
	}
	method := http.MethodPut
	if *stop {
		method = http.MethodDelete
	}
	sdp, err := ask.request(ctx, method, "/api/v1/outputs/"+url.PathEscape(name)+"/destinations/"+url.PathEscape(to))
	if err != nil {
		return err
	}
	if !*stop {
		_, err = io.WriteString(e.Out, printable.Lines(string(sdp)))
	}
	return err
}

// asker sends requests to the serve process of this machine.
type asker struct {
	base   string // base URL
	key    string // password or token; empty: none is sent
	client http.Client
}

var errNoServer = errors.New("serve cannot be asked, because the configuration has no page (web.listen: none): give it one, " +
	"or write the destination into the configuration")

// installedSocket is the socket at which the installed service serves root and the group tegracast.
const installedSocket = "/run/tegracast/" + web.SocketFile

func newAsker(w config.Web, installed bool) (*asker, error) {
	if w.Address() == "" {
		return nil, errNoServer
	}
	if installed && there(installedSocket) {
		return &asker{base: "http://localhost", client: http.Client{Timeout: askTimeout, Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", installedSocket)
			},
		}}}, nil
	}
	at, err := netip.ParseAddrPort(w.Address())
	if err != nil {
		return nil, err // the configuration was checked
	}
	if at.Addr().IsUnspecified() {
		at = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), at.Port())
	}
	a := &asker{base: "http://" + at.String(), client: http.Client{Timeout: askTimeout, CheckRedirect: followNobody}}
	if w.TLS() {
		a.base = "https://" + at.String()
		a.client.Transport = &http.Transport{TLSClientConfig: withCertificate(w)}
	}
	a.key, err = keyFor(w, at)
	return a, err
}

const askTimeout = 10 * time.Second

// withCertificate returns a TLS configuration that accepts only a server with the configuration's certificate, which
// need not contain the server's address.
func withCertificate(w config.Web) *tls.Config {
	return &tls.Config{
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			pair, err := tls.LoadX509KeyPair(w.Certificate, w.Key)
			if err == nil && !bytes.Equal(pair.Certificate[0], s.PeerCertificates[0].Raw) {
				err = fmt.Errorf("the server has another certificate than %s", w.Certificate)
			}
			return err
		},
	}
}

// followNobody has a client treat a redirect as the answer instead of following it: serve sends no redirects, so
// another program has answered.
func followNobody(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// request sends a request and returns the body of the answer, at most its first MiB. It returns an error if there is no
// answer or its status is 300 or more.
func (a *asker) request(ctx context.Context, method, path string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, a.base+path, nil)
	if err != nil {
		return nil, err
	}
	if a.key != "" {
		r.Header.Set("Authorization", "Bearer "+a.key)
	}
	answer, err := a.client.Do(r)
	var network *net.OpError
	switch {
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%w: root and members of the group tegracast may ask the service", err)
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
	if answer.StatusCode >= http.StatusMultipleChoices {
		return nil, fmt.Errorf("serve refuses: %s", cmp.Or(strings.TrimSpace(string(text)), answer.Status))
	}
	return text, nil
}
