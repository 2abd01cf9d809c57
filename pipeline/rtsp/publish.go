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
	"time"

	"github.com/bluenviron/gortsplib/v5"
	"github.com/bluenviron/gortsplib/v5/pkg/base"
	"github.com/bluenviron/gortsplib/v5/pkg/description"
	"github.com/bluenviron/gortsplib/v5/pkg/sdpunmarshaler"
	"github.com/pion/rtcp"

	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// ErrURL means that an address is not one at which a server takes streams.
var ErrURL = errors.New("write rtsp://HOST:PORT/NAME, without user and password")

const askLimit = 10 * time.Second // for the server to answer

// Remote is a server to which a stream is published.
type Remote struct {
	URL      string // rtsp://HOST:PORT/NAME
	User     string // empty: the server asks for none
	Password string
	Logger   *slog.Logger
}

// CheckURL says whether a stream can be published at an address.
func CheckURL(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "rtsp" || u.Hostname() == "" || u.Path == "" || u.Path == "/" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%q: %w", address, ErrURL)
	}
	return nil
}

// A Publisher has a server take a stream, by ANNOUNCE and RECORD over TCP (RFC 2326 §10.3, §10.11), so that the server's readers cost
// this machine nothing. A server that is lost, or not there yet, is asked again.
type Publisher struct {
	remote Remote
	sink   *send.Sink
	stop   context.CancelFunc
	done   chan struct{}
}

// Publish begins to publish a sink.
func Publish(sink *send.Sink, r Remote) (*Publisher, error) {
	if err := CheckURL(r.URL); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &Publisher{r, sink, stop, make(chan struct{})}
	go p.run(ctx)
	return p, nil
}

// Close ends the session.
func (p *Publisher) Close() {
	p.stop()
	<-p.done // ends: stop has ended its context
}

func (p *Publisher) run(ctx context.Context) {
	defer close(p.done)
	send.Persist(ctx, p.remote.Logger, p.remote.URL, p.once)
}

// once publishes until the session ends.
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
		ReadTimeout: askLimit, WriteTimeout: askLimit,
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
	p.remote.Logger.Info("rtsp: the server takes the stream", "server", p.remote.URL)
	err = c.Wait()
	if wire.Stalled() {
		err = errors.New("it took nothing for too long")
	}
	return errors.Join(err, packets.Close())
}

// describe is the stream as the server is told of it.
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
