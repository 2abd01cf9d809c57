// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
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

	"github.com/spf13/pflag"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/web"
)

// configOption adds the option --config of commands that send requests to serve.
func configOption(f *pflag.FlagSet) (path *string) {
	return f.String("config", "", "the configuration `FILE` that serve runs with (default \"/etc/tegracast/tegracast.yaml\", if it exists)")
}

// askerFor returns an asker for the serve process that runs with the configuration at path, or with the installed one if
// path is empty.
func askerFor(path string) (*asker, error) {
	if path == "" && there(installedConfig) {
		path = installedConfig
	}
	c, err := config.Load(path)
	if err != nil {
		return nil, err
	}
	return newAsker(c.Web, path == installedConfig)
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
		return &asker{base: "http://localhost", client: http.Client{Timeout: askTimeout, CheckRedirect: followNobody, Transport: &http.Transport{
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

// followNobody has a client treat a redirect as the answer instead of following it: serve redirects only what is no path
// of its interface, such as one with an empty name.
func followNobody(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// request sends a request with a body, which may be nil, and returns the body of the answer, at most its first MiB. It
// returns an error if there is no answer, or its status is 300 or more: a redirect counts as 404.
func (a *asker) request(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, a.base+path, bytes.NewReader(body))
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
	switch {
	case answer.StatusCode >= http.StatusBadRequest:
		return nil, &refusal{answer.StatusCode, cmp.Or(strings.TrimSpace(string(text)), answer.Status)}
	case answer.StatusCode >= http.StatusMultipleChoices:
		return nil, &refusal{http.StatusNotFound, fmt.Sprintf("there is no such name, or another program answers at %s", a.base)}
	}
	return text, nil
}

// askOutput sends a request without a body for an output, whose name is between two parts of the path. If there is none of
// that name, the error has the names that there are.
func (a *asker) askOutput(ctx context.Context, method, before, name, after string) ([]byte, error) {
	answer, err := a.request(ctx, method, before+url.PathEscape(name)+after, nil)
	if refused, is := errors.AsType[*refusal](err); !is || refused.status != http.StatusNotFound {
		return answer, err
	}
	text, failed := a.request(ctx, http.MethodGet, "/api/v1/status", nil)
	var s web.Status
	if failed != nil || json.Unmarshal(text, &s) != nil {
		return nil, err
	}
	outputs := make([]string, len(s.Outputs))
	for i, o := range s.Outputs {
		if outputs[i] = o.Name; o.Name == name {
			return nil, err // it is not of the kind that was asked for
		}
	}
	return nil, fmt.Errorf("there is no output %.64q: the outputs are %s", name, cmp.Or(strings.Join(outputs, ", "), "none"))
}

// put sends a value as JSON by PUT.
func (a *asker) put(ctx context.Context, path string, value any) error {
	body, err := json.Marshal(value)
	if err == nil {
		_, err = a.request(ctx, http.MethodPut, path, body)
	}
	return err
}

// A refusal is an answer with a status of 400 or more.
type refusal struct {
	status int
	why    string
}

func (r *refusal) Error() string { return "serve refuses: " + r.why }
