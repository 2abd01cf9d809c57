// SPDX-License-Identifier: Apache-2.0

package rtsp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/bluenviron/gortsplib/v5"
	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/bluenviron/gortsplib/v5/pkg/description"
	"github.com/bluenviron/gortsplib/v5/pkg/sdpunmarshaler"
	"github.com/pion/rtcp"

	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// ErrURL means that an address does not have the form of Remote.URL.
var ErrURL = errors.New("write rtsp://HOST:PORT/NAME, without user and password")

const askLimit = 10 * time.Second // time limit for the server's answers

// Remote is a server to which a stream is published.
type Remote struct {
	URL      string // rtsp://HOST:PORT/NAME
	User     string // empty if the server requires no password
	Password string
	Logger   *slog.Logger
}

// CheckURL returns an error that wraps ErrURL unless address has the form of the URL of a stream. It does not contact
// the server.
func CheckURL(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "rtsp" || u.Hostname() == "" || u.Path == "" || u.Path == "/" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%q: %w", address, ErrURL)
	}
	return nil
}

// A Publisher publishes a stream to a server, by ANNOUNCE and RECORD over TCP (RFC 2326 §10.3, §10.11), so that the
// server's readers put no load on this machine. It retries if the server is unavailable or the connection is lost.
type Publisher struct {
	remote Remote
	sink   *send.Sink
	stop   context.CancelFunc
	done   chan struct{}
	clear  sync.Once // for the warning that the password is sent in clear text

	accepted send.Acceptance
}

// Publish starts publishing a sink's stream. The caller must close the Publisher.
func Publish(sink *send.Sink, r Remote) (*Publisher, error) {
	if err := CheckURL(r.URL); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &Publisher{remote: r, sink: sink, stop: stop, done: make(chan struct{})}
	go p.run(ctx)
	return p, nil
}

// Trouble returns why the server does not take the stream, or "" if it does.
func (p *Publisher) Trouble() string { return p.accepted.Trouble() }

// Close ends the session, and waits until it has ended.
func (p *Publisher) Close() {
	p.stop()
	<-p.done // ends: stop has ended its context
}

func (p *Publisher) run(ctx context.Context) {
	defer close(p.done)
	send.Persist(ctx, p.remote.Logger, p.remote.URL, &p.accepted, p.once)
}

// once publishes until the session ends, and returns the reason.
func (p *Publisher) once(ctx context.Context) error {
	u, err := base.ParseURL(p.remote.URL)
	if err != nil {
		return err
	}
	if p.remote.User != "" {
		u.User = url.UserPassword(p.remote.User, p.remote.Password)
	}
	var wire *send.Conn
	tcp := gortsplib.ProtocolTCP
	c := &gortsplib.Client{
		Scheme: u.Scheme, Host: u.Host, Protocol: &tcp, UserAgent: "tegracast", DisableRTCPSenderReports: true,
		ReadTimeout: askLimit, WriteTimeout: askLimit, OnDecodeError: func(error) {},
		OnRequest: p.warnOfBasic,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			wire, err = send.NewConn(conn.(*net.TCPConn))
			return wire, err
		},
	}
	if err := c.Start(); err != nil {
		return err
	}
	defer c.Close()
	ended := context.AfterFunc(ctx, c.Close)
	defer ended()
	d, err := p.describe()
	if err != nil {
		return err
	}
	if _, err := c.Announce(u, d); err != nil {
		return err
	}
	if err := c.SetupAll(u, d.Medias); err != nil {
		return err
	}
	packets := p.sink.ReaderOn(wire, 0)
	c.OnPacketRTCPAny(func(_ *description.Media, r rtcp.Packet) { packets.Hear(r) })
	if _, err := c.Record(); err != nil {
		return errors.Join(err, packets.Close())
	}
	if err := packets.Begin(); err != nil {
		return err
	}
	p.accepted.Taken()
	p.remote.Logger.Info("rtsp: the server accepted the stream", "server", p.remote.URL)
	err = c.Wait()
	if wire.Stalled() {
		err = errors.New("it accepted no data for too long")
	}
	return errors.Join(err, packets.Close())
}

// warnOfBasic warns, once, if a request has the password in clear text (RFC 7617), which RTSP does not encrypt.
func (p *Publisher) warnOfBasic(r *base.Request) {
	for _, v := range r.Header["Authorization"] {
		if strings.HasPrefix(v, "Basic ") {
			p.clear.Do(func() {
				p.remote.Logger.Warn("rtsp: the server wants the password in clear text, so anyone on the way to it can read it: "+
					"configure it for digest authentication",
					"server", p.remote.URL)
			})
		}
	}
}

// describe returns the stream's description for the server.
func (p *Publisher) describe() (*description.Session, error) {
	text, err := p.sink.Session(netip.IPv4Unspecified(), control)
	if err != nil {
		return nil, err
	}
	parsed, err := sdpunmarshaler.Unmarshal(text)
	if err != nil {
		return nil, err
	}
	d := &description.Session{}
	return d, d.Unmarshal2(parsed)
}
