// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bufio"
	"context"
	"crypto/sha256"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// FuzzRequest has another machine send any request: no handler panics, and who does not say the password gets nothing but whether the
// appliance is well.
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
		"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", "CONNECT localhost:1 HTTP/1.1\r\n\r\n",
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
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(string(raw))))
		if err != nil {
			return
		}
		c.door = &door{password: sha256.Sum256([]byte(secret)), log: slog.New(slog.DiscardHandler)}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond) // pictures and events do not end
		defer cancel()
		r.RemoteAddr = "192.0.2.1:1234"
		w := httptest.NewRecorder()
		c.routes(http.NotFoundHandler(), make(chan struct{})).ServeHTTP(w, r.WithContext(ctx))
		_, _ = io.Copy(io.Discard, r.Body)
		said, _ := saidPassword(r)
		if w.Code < 300 && said != secret && r.URL.Path != "/healthz" && r.URL.Path != "/readyz" {
			t.Errorf("status %d: %q", w.Code, w.Body)
		}
	})
}
