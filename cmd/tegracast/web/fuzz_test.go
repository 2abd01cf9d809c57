// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// FuzzRequest sends arbitrary requests from another machine. No handler may panic, and a client without a key may get
// nothing but metrics.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{
		"GET / HTTP/1.1\r\nHost: camera.example\r\n\r\n", "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "GET /film.jpg HTTP/1.0\r\n\r\n",
		"GET /api/v1/status HTTP/1.1\r\nHost: localhost:8080\r\nAuthorization: Basic eDp4\r\n\r\n", "HEAD //metrics HTTP/1.1\r\nHost: [::1]\r\n\r\n",
		"POST /record/x/trigger HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer wrong\r\nContent-Length: 3\r\n\r\nabc", "GET /%2e%2e/film.mjpeg HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET http://localhost/page.js HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"POST /film/whep HTTP/1.1\r\nHost: a\r\n\r\n", "DELETE /film/whep/x HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"PUT /api/v1/config HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic eDpjb3JyZWN0IGhvcnNlIGJhdHRlcnk=\r\nContent-Length: 7\r\n\r\nweb: {}",
		"PUT /api/v1/isp/isp/white_balance HTTP/1.1\r\nHost: a\r\nAuthorization: Basic eDpjb3JyZWN0IGhvcnNlIGJhdHRlcnk=\r\nContent-Length: 2\r\n\r\n{}",
		"POST /api/v1/outputs/film/stop HTTP/1.1\r\nHost: a\r\n\r\n", "GET /film.dng HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET /?token=00112233445566778899aabbccddeeff HTTP/1.1\r\nHost: 192.0.2.2\r\nX-Forwarded-For: 198.51.100.1, [2001:db8::1]:80,192.0.2.9\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nCookie: tegracast_8443=x; tegracast_8443=00112233445566778899aabbccddeeff\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + testToken + "\r\n\r\n", "CONNECT localhost:1 HTTP/1.1\r\n\r\n",
		"GET /api/v1/events HTTP/1.1\r\nHost: a\r\nLast-Event-ID: 18446744073709551615\r\nAuthorization: Basic eDpjb3JyZWN0IGhvcnNlIGJhdHRlcnk=\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	c := &Config{
		Stats: stats, Health: (&state{ready: true}).health, Events: NewEvents(), Logger: slog.New(slog.DiscardHandler),
		Outputs: func() []Output { return nil },
		View:    func(string) (View, error) { return &film{size: 10}, nil },
		SDP:     func(string) ([]byte, error) { return []byte("v=0\r\n"), nil },
		Trigger: func(string, string) (bool, error) { return true, nil },
		Send:    func(context.Context, string, string) ([]byte, error) { return []byte("v=0\r\n"), nil },
		Unsend:  func(string, string) error { return nil },
		Switch:  func(context.Context, string, bool) error { return nil },
		Still:   func(context.Context, string, string) (Still, error) { return Still{1, []byte("file")}, nil },

		Settings: knobs{}, Configurator: editor{},
		WHEP: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }),
	}
	proxies := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(string(raw))))
		if err != nil {
			return
		}
		c.Access = Access{Password: secret, Token: testToken, Certificate: &tls.Certificate{}, TrustedProxies: proxies}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond) // streams of pictures and events do not end by themselves
		defer cancel()
		w := httptest.NewRecorder()
		handler := c.handler(http.NotFoundHandler(), c.newDoor(&net.TCPAddr{Port: 8443}), make(chan struct{}))
		handler.ServeHTTP(w, r.WithContext(withPeer(ctx, remote{})))
		_, _ = io.Copy(io.Discard, r.Body)
		if w.Code < 300 && !strings.Contains(string(raw), testToken) && !hasSecret(r) {
			t.Errorf("status %d: %q", w.Code, w.Body)
		}
	})
}

func hasSecret(r *http.Request) bool {
	said, _ := saidPassword(r)
	return said == secret
}

// remote is the connection of a proxy.
type remote struct{ net.Conn }

// RemoteAddr implements net.Conn.
func (remote) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1234} }

// LocalAddr implements net.Conn.
func (remote) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 8443} }
