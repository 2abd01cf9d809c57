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

// Errors about a server to which a stream is to be published.
var (
	ErrURL   = errors.New("write https://HOST/PATH, as the server's WHIP endpoint is, without user and password")
	ErrToken = errors.New("the token would be sent to another machine unencrypted: write https")

	errElsewhere = errors.New("the server redirects to another server, which is not followed: if that one is yours, write its address as url")
)

const (
	askLimit  = 10 * time.Second // time limit for the server's answers
	endLimit  = 2 * time.Second  // time limit for telling the server about the end
	maxWords  = 200              // maximum number of bytes of an answer that are quoted in an error
	offerType = 108              // payload type of H.264; could be any dynamic one
)

// Remote is a server to which a stream is published by WHIP (RFC 9725).
type Remote struct {
	URL   string                 // https://HOST/PATH or http://HOST/PATH
	Token func() (string, error) // returns the "Bearer" token of the requests (RFC 6750), called for each session; nil if the server requires none
}

// CheckURL returns an error that wraps ErrURL if address is not a URL of the form of Remote.URL, or ErrToken if token
// is true and a token would be sent unencrypted.
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

// A Publisher publishes a stream to a server by WHIP. It retries if the server is unavailable or the connection is
// lost.
type Publisher struct {
	server *Server
	stream *stream
	remote Remote
	origin *url.URL // parsed remote.URL
	token  string   // token of the current session
	client *http.Client
	stop   context.CancelFunc
	done   chan struct{}

	accepted send.Acceptance
}

// Publish starts publishing the stream with the given name, which must have been added. The caller must close the
// Publisher.
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
	origin, err := url.Parse(r.URL)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &Publisher{server: s, stream: st, remote: r, origin: origin, stop: stop, done: make(chan struct{})}
	p.client = &http.Client{
		Timeout: askLimit, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}, CheckRedirect: p.redirected,
	}
	go func() {
		defer close(p.done)
		send.Persist(ctx, s.log, r.URL, &p.accepted, p.once)
	}()
	return p, nil
}

// redirected follows a redirect only to another path of the configured origin, and at most five in a row. Otherwise a
// server could make this machine send requests to itself or to other machines in its network, and the token would be
// sent there. RFC 9725 §4.5 also asks for redirects to other servers to be followed; here the configuration must name
// the server instead.
func (p *Publisher) redirected(r *http.Request, via []*http.Request) error {
	const most = 5
	if len(via) > most {
		return errors.New("the server redirects too often")
	}
	if !sameOrigin(r.URL, p.origin) {
		return fmt.Errorf("%w: %s://%s", errElsewhere, r.URL.Scheme, r.URL.Host)
	}
	return nil
}

// Trouble returns why the server does not take the stream, or "" if it does.
func (p *Publisher) Trouble() string { return p.accepted.Trouble() }

// Close ends the session and any attempts to begin one, and waits until they have ended.
func (p *Publisher) Close() {
	p.stop()
	<-p.done // ends: stop has ended its context
}

// once publishes until the session ends, and returns the reason.
func (p *Publisher) once(ctx context.Context) error {
	from, to, err := towards(ctx, p.origin)
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
		p.accepted.Taken()
		p.server.log.Info("webrtc: the server accepted the stream", "output", p.stream.name, "server", p.remote.URL)
	}
	place, err := p.offerStream(ctx, v, to)
	if err != nil {
		return errors.Join(err, v.peer.GracefulClose())
	}
	v.agreed(sender)
	defer context.AfterFunc(ctx, func() { v.end(errOutputEnded) })()
	p.stream.join(v)
	v.run(p.server.limits.connect)
	close(v.over)
	return errors.Join(v.why, p.endSession(place))
}

// towards returns this machine's addresses from which packets go to a server, and the server's addresses: at most one
// of each for each version of IP. It returns an error if there are none.
func towards(ctx context.Context, u *url.URL) (from, to []netip.Addr, err error) {
	for _, network := range []string{"udp4", "udp6"} { // dialing UDP sends nothing
		c, derr := (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")))
		if derr != nil {
			err = derr
			continue
		}
		from = append(from, c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().WithZone(""))
		to = append(to, c.RemoteAddr().(*net.UDPAddr).AddrPort().Addr().Unmap())
		_ = c.Close()
	}
	if len(from) == 0 {
		return nil, nil, err
	}
	return from, to, nil
}

// offerStream offers the stream to the server, which has the addresses to, and returns the URL of the session.
func (p *Publisher) offerStream(ctx context.Context, v *session, to []netip.Addr) (place string, err error) {
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
	answer, err := p.request(ctx, http.MethodPost, p.remote.URL, v.peer.LocalDescription().SDP)
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
	if err := agree(v, answer.Body, to); err != nil {
		return "", errors.Join(err, p.endSession(at.String()))
	}
	return at.String(), nil
}

// agree processes the answer of the server, which has the addresses to.
func agree(v *session, answer io.Reader, to []netip.Addr) error {
	text, err := io.ReadAll(io.LimitReader(answer, maxOffer))
	if err != nil {
		return fmt.Errorf("the server's answer cannot be read: %w", err)
	}
	sdp, err := withinReach(text, to)
	if err == nil {
		err = v.peer.SetRemoteDescription(pion.SessionDescription{Type: pion.SDPTypeAnswer, SDP: sdp})
	}
	if err != nil {
		return fmt.Errorf("the server's answer is not one of WebRTC: %w", err)
	}
	return nil
}

// endSession tells the server that the session at a URL is over. A server that does not answer, or has given a URL on
// another server, has to find out by itself.
func (p *Publisher) endSession(place string) error {
	ctx, cancel := context.WithTimeout(context.Background(), endLimit)
	defer cancel()
	answer, err := p.request(ctx, http.MethodDelete, place, "")
	if err != nil {
		return nil
	}
	return answer.Body.Close()
}

// sameOrigin reports whether two URLs have the same scheme, host and port (RFC 6454 §5).
func sameOrigin(a, b *url.URL) bool {
	port := func(u *url.URL) string {
		usual := map[string]string{"http": "80", "https": "443"}
		return cmp.Or(u.Port(), usual[u.Scheme])
	}
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

// request sends a request, with the token if there is one, to a URL that may have come from the server. It returns an
// error if the URL is not one of the configured origin.
func (p *Publisher) request(ctx context.Context, method, address, offer string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(offer))
	if err != nil {
		return nil, err
	}
	if err := p.redirected(r, nil); err != nil {
		return nil, err
	}
	if offer != "" {
		r.Header.Set("Content-Type", mediaType)
	}
	if p.token != "" {
		r.Header.Set("Authorization", "Bearer "+p.token)
	}
	r.Header.Set("User-Agent", "tegracast")
	return p.client.Do(r)
}
