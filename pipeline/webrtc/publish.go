// SPDX-License-Identifier: Apache-2.0

package webrtc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	pion "github.com/pion/webrtc/v4"

	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// What is wrong with a server to which a stream is to be published.
var (
	ErrURL   = errors.New("write https://HOST/PATH, as the server's WHIP endpoint is, without user and password")
	ErrToken = errors.New("the token would go to another machine as everybody on the way can read it: write https")
)

const (
	askLimit  = 10 * time.Second // for the server to answer
	endLimit  = 2 * time.Second  // for it to hear of the end
	maxWords  = 200              // bytes of an answer that an error has
	offerType = 108              // payload type of H.264; any dynamic one would do
)

// Remote is a server to which a stream is published by WHIP (RFC 9725).
type Remote struct {
	URL   string                 // https://HOST/PATH, or http
	Token func() (string, error) // "Bearer" of the requests (RFC 6750), asked for with each session; nil: the server asks for none
}

// CheckURL says whether a stream can be published at an address, with a token or without.
func CheckURL(address string, token bool) error {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return fmt.Errorf("%q: %w", address, ErrURL)
	}
	a, err := netip.ParseAddr(u.Hostname())
	if token && u.Scheme == "http" && u.Hostname() != "localhost" && (err != nil || !a.IsLoopback()) {
		return fmt.Errorf("%q: %w", address, ErrToken)
	}
	return nil
}

// A Publisher has a server take a stream by WHIP. A server that is lost, or not there yet, is asked again.
type Publisher struct {
	server *Server
	stream *stream
	remote Remote
	token  string // of the session
	client *http.Client
	stop   context.CancelFunc
	done   chan struct{}
}

// Publish begins to publish the stream of a name, which has been added.
func (s *Server) Publish(name string, r Remote) (*Publisher, error) {
	if err := CheckURL(r.URL, r.Token != nil); err != nil {
		return nil, err
	}
	s.mu.Lock()
	st := s.streams[name]
	s.mu.Unlock()
	if st == nil {
		return nil, errNoStream
	}
	ctx, stop := context.WithCancel(context.Background())
	client := &http.Client{
		Timeout: askLimit, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}, CheckRedirect: redirected,
	}
	p := &Publisher{server: s, stream: st, remote: r, client: client, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		send.Persist(ctx, s.log, r.URL, p.once)
	}()
	return p, nil
}

// redirected refuses a way that gives the token away.
func redirected(r *http.Request, via []*http.Request) error {
	const most = 5
	if len(via) > most {
		return errors.New("the server sends us from address to address")
	}
	return CheckURL(r.URL.String(), r.Header.Get("Authorization") != "")
}

// Close ends the session, and the attempts to begin one.
func (p *Publisher) Close() {
	p.stop()
	<-p.done // ends: stop has ended its context
}

// once publishes until the session ends.
func (p *Publisher) once(ctx context.Context) error {
	from, err := towards(ctx, p.remote.URL)
	if err == nil && p.remote.Token != nil {
		p.token, err = p.remote.Token()
	}
	if err != nil {
		return err
	}
	codec := pion.RTPCodecParameters{PayloadType: offerType, RTPCodecCapability: pion.RTPCodecCapability{
		MimeType: pion.MimeTypeH264, ClockRate: rtp.ClockRate, RTCPFeedback: feedback(),
		SDPFmtpLine: "level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=42e01f",
	}}
	v, sender, err := newSession(p.stream, codec, way{from: from}, p.server.limits)
	if err != nil {
		return err
	}
	v.by, v.begins = "WHIP", func() {
		p.server.log.Info("webrtc: the server takes the stream", "output", p.stream.name, "server", p.remote.URL)
	}
	place, err := p.begin(ctx, v)
	if err != nil {
		return errors.Join(err, v.peer.GracefulClose())
	}
	v.agreed(sender)
	defer context.AfterFunc(ctx, func() { v.end(errOutputEnded) })()
	p.stream.join(v)
	v.run(p.server.limits.connect)
	close(v.over)
	return errors.Join(v.why, p.end(place))
}

// towards are the addresses of this machine from which packets go to a server.
func towards(ctx context.Context, address string) (from []netip.Addr, err error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	for _, network := range []string{"udp4", "udp6"} { // which sends nothing
		c, derr := (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")))
		if derr != nil {
			err = derr
			continue
		}
		from = append(from, c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().WithZone(""))
		_ = c.Close()
	}
	if len(from) == 0 {
		return nil, err
	}
	return from, nil
}

// begin offers the stream to the server, and returns the address of the session.
func (p *Publisher) begin(ctx context.Context, v *session) (place string, err error) {
	offer, err := v.peer.CreateOffer(nil)
	if err != nil {
		return "", err
	}
	gathered := pion.GatheringCompletePromise(v.peer)
	if err := v.peer.SetLocalDescription(offer); err != nil {
		return "", err
	}
	if err := awaitGathered(gathered); err != nil {
		return "", err
	}
	answer, err := p.ask(ctx, http.MethodPost, p.remote.URL, v.peer.LocalDescription().SDP)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusCreated {
		text, err := io.ReadAll(io.LimitReader(answer.Body, maxWords))
		return "", errors.Join(fmt.Errorf("the server answers %q: %q", answer.Status, strings.TrimSpace(string(text))), err)
	}
	at, err := answer.Location()
	if err != nil {
		return "", fmt.Errorf("the server does not say where the session is: %w", err)
	}
	if err := agree(v, answer.Body); err != nil {
		return "", errors.Join(err, p.end(at.String()))
	}
	return at.String(), nil
}

// agree takes the server's answer.
func agree(v *session, answer io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(answer, maxOffer))
	if err != nil {
		return fmt.Errorf("the server's answer cannot be read: %w", err)
	}
	if err := v.peer.SetRemoteDescription(pion.SessionDescription{Type: pion.SDPTypeAnswer, SDP: string(text)}); err != nil {
		return fmt.Errorf("what the server answers is no answer of WebRTC: %w", err)
	}
	return nil
}

// end tells the server that the session of an address is over. One that does not answer finds out by itself.
func (p *Publisher) end(place string) error {
	if CheckURL(place, false) != nil {
		return nil // there is nobody to be told
	}
	ctx, cancel := context.WithTimeout(context.Background(), endLimit)
	defer cancel()
	answer, err := p.ask(ctx, http.MethodDelete, place, "")
	if err != nil {
		return nil
	}
	return answer.Body.Close()
}

// sameOrigin says whether two addresses have the scheme, host and port in common (RFC 6454 §5).
func sameOrigin(a, b *url.URL) bool {
	port := func(u *url.URL) string {
		usual := map[string]string{"http": "80", "https": "443"}
		return cmp.Or(u.Port(), usual[u.Scheme])
	}
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

// ask sends a request to an address that the server may have named: the token goes to the configured one alone. When redirected, net/http
// drops it for another host.
func (p *Publisher) ask(ctx context.Context, method, address, offer string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(offer))
	if err != nil {
		return nil, err
	}
	if offer != "" {
		r.Header.Set("Content-Type", mediaType)
	}
	server, err := url.Parse(p.remote.URL)
	if err != nil {
		return nil, err
	}
	if p.token != "" && sameOrigin(r.URL, server) {
		r.Header.Set("Authorization", "Bearer "+p.token)
	}
	r.Header.Set("User-Agent", "tegracast")
	return p.client.Do(r)
}
