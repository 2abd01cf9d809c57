// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline/guesses"
)

const secret = "correct horse battery"

// locked starts a server with TLS and a password. client trusts its certificate, and has neither password nor token.
func locked(t *testing.T, with ...func(*Config)) (base string, client *http.Client) {
	t.Helper()
	example := httptest.NewTLSServer(nil) // has a certificate of example.com and 127.0.0.1
	t.Cleanup(example.Close)
	s := &state{ready: true}
	c := Config{
		listen: "127.0.0.1:0", Stats: stats, Health: s.health, Outputs: func() []Output { return nil },
		Trigger: func(string, string) (bool, error) { return true, nil }, Configurator: editor{}, profile: true,
		Access: Access{Certificate: &example.TLS.Certificates[0], Password: secret, Token: testToken},
	}
	for _, f := range with {
		f(&c)
	}
	base = startServer(t, c)
	if c.Access.Certificate != nil {
		base = strings.Replace(base, "http:", "https:", 1)
	}
	return base, example.Client()
}

func ask(t *testing.T, client *http.Client, method, url string, change func(*http.Request)) (status int, body string, header http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(r)
	}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(b), answer.Header
}

// TestAccess checks that a client with a key gets everything, however it sends the key, and that one without gets only
// health and metrics, even on this machine.
func TestAccess(t *testing.T) {
	keys := map[string]func(*http.Request){
		"Basic":  func(r *http.Request) { r.SetBasicAuth("anyone", secret) },
		"Bearer": func(r *http.Request) { r.Header.Set("Authorization", "bearer "+secret) },
		"token":  func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+testToken) },
		"URL":    func(r *http.Request) { r.URL.RawQuery = "token=" + testToken },
	}
	for _, certificate := range []bool{true, false} {
		base, client := locked(t, func(c *Config) {
			if !certificate {
				c.Access.Certificate = nil
			}
		})
		for _, path := range []string{"/", "/page.js", "/api/v1/status", "/api/v1/config", "/x.sdp", "/record/x/trigger", "/debug/pprof/cmdline", "/nothing"} {
			method := map[bool]string{true: http.MethodPost, false: http.MethodGet}[strings.HasPrefix(path, "/record")]
			status, _, header := ask(t, client, method, base+path, nil)
			if status != http.StatusUnauthorized || !strings.HasPrefix(header.Get("WWW-Authenticate"), "Basic") {
				t.Errorf("%s without a password: status %d, %v", path, status, header)
			}
			if path == "/x.sdp" || path == "/nothing" {
				continue
			}
			for name, by := range keys {
				if status, body, _ := ask(t, client, method, base+path, by); status != http.StatusOK {
					t.Errorf("%s by %s: status %d: %s", path, name, status, body)
				}
			}
		}
		for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
			if status, _, _ := ask(t, client, http.MethodGet, base+path, nil); status != http.StatusOK {
				t.Errorf("%s: status %d", path, status)
			}
		}
		if status, _, _ := ask(t, client, http.MethodPost, base+"/record/x/trigger", func(r *http.Request) {
			r.SetBasicAuth("", secret)
			r.Header.Set("Origin", "https://elsewhere.example")
			r.Header.Set("Sec-Fetch-Site", "cross-site")
		}); status != http.StatusForbidden {
			t.Errorf("a page of another site triggers: status %d", status)
		}
	}
}

// TestCookie checks that a browser that sends the token in the URL keeps it as a cookie, hidden from scripts and from
// pages of other sites.
func TestCookie(t *testing.T) {
	base, client := locked(t)
	_, _, header := ask(t, client, http.MethodGet, base+"/?token="+testToken, nil)
	cookies := (&http.Response{Header: header}).Cookies()
	if len(cookies) != 1 {
		t.Fatalf("%v", header)
	}
	c := cookies[0]
	if !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || !strings.HasSuffix(base, strings.TrimPrefix(c.Name, "tegracast_")) {
		t.Errorf("%+v", c)
	}
	for value, want := range map[string]int{c.Value: http.StatusOK, "wrong": http.StatusUnauthorized} {
		for range 11 { // a wrong token does not count: it has 128 bits
			if status, _, _ := ask(t, client, http.MethodGet, base+"/", func(r *http.Request) {
				r.AddCookie(&http.Cookie{Name: c.Name, Value: value})
			}); status != want {
				t.Fatalf("cookie %q: status %d, want %d", value, status, want)
			}
		}
	}
}

// TestNames checks that a page of another site whose name resolves to this server gets nothing, even with a key, and
// neither health, metrics nor profiles.
func TestNames(t *testing.T) {
	base, client := locked(t, func(c *Config) { c.Access.Hosts = []string{"Camera.Example.org"} })
	for _, path := range []string{"/", "/metrics", "/healthz", "/debug/pprof/heap", "/record/x/trigger", "/api/v1/status"} {
		for host, good := range map[string]bool{
			"": true, "localhost": true, "localhost:1": true, "LOCALHOST.": true, "[::1]:8080": true, "192.0.2.7:80": true,
			"camera.example.org": true, "example.com": true, // in the certificate
			"evil.example": false, "localhost.evil.example": false, "127.0.0.1.evil.example": false, "camera.example.org.evil.example:80": false,
		} {
			status, body, _ := ask(t, client, http.MethodGet, base+path, func(r *http.Request) {
				r.Host = host
				r.SetBasicAuth("", secret)
			})
			if (status == http.StatusMisdirectedRequest) == good {
				t.Errorf("%s for %q: status %d: %s", path, host, status, body)
			}
		}
	}
}

// TestWrongPasswords checks that after ten wrong passwords a client must wait, even with the right one, but not with the
// token.
func TestWrongPasswords(t *testing.T) {
	base, client := locked(t)
	wrong := func(r *http.Request) { r.SetBasicAuth("", "wrong") }
	for i := range 10 {
		if status, _, _ := ask(t, client, http.MethodGet, base+"/", wrong); status != http.StatusUnauthorized {
			t.Fatalf("wrong password %d: status %d", i+1, status)
		}
	}
	right := func(r *http.Request) { r.SetBasicAuth("", secret) }
	status, body, header := ask(t, client, http.MethodGet, base+"/", right)
	if status != http.StatusTooManyRequests || header.Get("Retry-After") == "" || strings.Contains(body, secret) {
		t.Errorf("status %d, %v: %s", status, header, body)
	}
	if status, _, _ := ask(t, client, http.MethodGet, base+"/?token="+testToken, nil); status != http.StatusOK {
		t.Errorf("with the token: status %d", status)
	}
}

// TestWrongPasswordsElsewhere checks that wrong passwords at another entrance of the process, such as RTSP, count as
// well.
func TestWrongPasswordsElsewhere(t *testing.T) {
	var all guesses.Guesses
	base, client := locked(t, func(c *Config) { c.Access.Guesses = &all })
	for range 10 {
		all.Failed(guesses.Client(fmt.Sprintf("user %d", os.Getuid())), "rtsp", time.Now(), discard)
	}
	if status, _, _ := ask(t, client, http.MethodGet, base+"/", func(r *http.Request) { r.SetBasicAuth("", secret) }); status != http.StatusTooManyRequests {
		t.Errorf("status %d", status)
	}
}

// TestForwarded checks that the client behind a trusted proxy is the last address that is not a trusted proxy's, and that
// X-Forwarded-For from other peers is ignored.
func TestForwarded(t *testing.T) {
	a := &Access{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("127.0.0.0/8")}}
	for _, tt := range []struct {
		peer, forwarded string
		want            string
	}{
		{"192.0.2.1", "198.51.100.7", "198.51.100.7"},
		{"192.0.2.1", "10.0.0.1, 198.51.100.7", "198.51.100.7"},
		{"192.0.2.1", "10.0.0.1, 198.51.100.7, 192.0.2.9", "198.51.100.7"},
		{"192.0.2.1", "10.0.0.1\n198.51.100.7:4711", "198.51.100.7"},
		{"2001:db8::1", "[2001:4860::1:2:3:4]:80", "2001:4860::"},
		{"192.0.2.1", "10.0.0.1, unknown", "peer"},
		{"192.0.2.1", "", "peer"},
		{"192.0.2.1", "192.0.2.8", "peer"},
		{"198.51.100.1", "10.0.0.1", "peer"},
		{"127.0.0.1", "198.51.100.7", "198.51.100.7"},
		{"127.0.0.1", "198.51.100.7, 127.0.0.1", "127.0.0.1"}, // a person on this machine has written the first one
		{"127.0.0.1", "a person's 198.51.100.7", "peer"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		forwarded, person := strings.CutPrefix(tt.forwarded, "a person's ")
		for _, v := range strings.Split(forwarded, "\n") {
			r.Header.Add("X-Forwarded-For", v)
		}
		p := &peer{address: netip.MustParseAddr(tt.peer), client: func() guesses.Client { return "peer" }, person: func() bool { return person }}
		if got := a.client(p, r); string(got) != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}

// TestWithoutTLS checks that only this machine and clients behind trusted proxies are admitted, with the password.
func TestWithoutTLS(t *testing.T) {
	a := &Access{Password: secret, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, Guesses: &guesses.Guesses{}}
	d := &door{Access: a, names: newNames(a)}
	h := d.private(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w, nil) }))
	for peerAddress, want := range map[string]int{"127.0.0.1": 200, "::1": 200, "192.0.2.9": 200, "198.51.100.1": 403} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.SetBasicAuth("", secret)
		p := &peer{address: netip.MustParseAddr(peerAddress), client: func() guesses.Client { return "" }, person: func() bool { return false }}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r.WithContext(context.WithValue(t.Context(), peerKey{}, p))); w.Code != want {
			t.Errorf("%s: status %d: %s", peerAddress, w.Code, w.Body)
		}
	}
}

// TestSocket checks that clients of the socket need no key, and that a page of another site gets nothing there either.
func TestSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.sock")
	base, _ := locked(t, func(c *Config) { c.Socket = path })
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	for host, want := range map[string]int{"localhost": http.StatusOK, "evil.example": http.StatusMisdirectedRequest} {
		if status, body, _ := ask(t, client, http.MethodGet, "http://"+host+"/api/v1/config", nil); status != want {
			t.Errorf("%s: status %d: %s", host, status, body)
		}
	}
	c := Config{listen: "127.0.0.1:0", Socket: path, Stats: stats, Health: (&state{}).health, Logger: discard}
	if s, err := New(c); err == nil {
		t.Errorf("two servers have %s, and %s", path, base)
		_ = s.Close()
	}
}

func TestAccessRefuses(t *testing.T) {
	proxies := []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}
	for _, tt := range []struct {
		listen string
		access Access
	}{
		{"127.0.0.1:0", Access{Password: "short"}},
		{"0.0.0.0:0", Access{}},
		{"0.0.0.0:0", Access{Password: secret}},
		{"0.0.0.0:0", Access{TrustedProxies: proxies}},
	} {
		s, err := New(Config{listen: tt.listen, Stats: stats, Health: (&state{}).health, Access: tt.access, Logger: discard})
		if !errors.Is(err, ErrAccess) {
			t.Errorf("%+v: %v", tt, err)
		}
		if err == nil {
			_ = s.Close()
		}
	}
}

// TestHTTP2 checks that browsers send all requests on one TLS connection (RFC 9113).
func TestHTTP2(t *testing.T) {
	base, client := locked(t)
	client.Transport.(*http.Transport).ForceAttemptHTTP2 = true
	r, err := client.Get(base + "/healthz")
	if err != nil || r.Body.Close() != nil || r.ProtoMajor != 2 {
		t.Fatalf("%v, %v", r, err)
	}
	for password, want := range map[string]int{secret: http.StatusOK, "": http.StatusUnauthorized} {
		for range 3 {
			status, body, _ := ask(t, client, http.MethodPut, base+"/api/v1/config", func(r *http.Request) {
				if password != "" {
					r.SetBasicAuth("", password)
				}
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader("web: {}")), 7
			})
			if status != want {
				t.Errorf("a body with the password %q: status %d: %s", password, status, body)
			}
		}
	}
}

// TestUnfinishedBodies checks that clients that start to send a body and then stop occupy neither connections nor turns
// of others.
func TestUnfinishedBodies(t *testing.T) {
	base, client := locked(t, func(c *Config) {
		c.Access.Certificate = nil
		c.WHEP = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) })
	})
	key := "Authorization: Bearer " + testToken + "\r\n"
	for path, header := range map[string]string{"/healthz": "", "/api/v1/status": "", "/x/whep": key, "/api/v1/config": key} {
		var open []net.Conn
		for range maxBeginning + 2 {
			conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			open = append(open, conn)
			if _, err := io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: localhost\r\n"+header+"Content-Length: 100000\r\n\r\nx"); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		status, body, _ := ask(t, client, http.MethodPost, base+"/x/whep", func(r *http.Request) { r.SetBasicAuth("", secret) })
		if status != http.StatusCreated {
			t.Errorf("while bodies of %s do not come: status %d: %s", path, status, body)
		}
		if header != "" && time.Since(began) < bodyLimit {
			continue // these still have time
		}
		for _, c := range open {
			_ = c.SetReadDeadline(time.Now().Add(time.Minute))
			if _, err := io.Copy(io.Discard, c); errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: a connection stays open", path)
			}
		}
	}
}

// lines counts the lines of a log.
type lines struct{ n atomic.Int64 }

func (l *lines) Write(b []byte) (int, error) {
	l.n.Add(int64(bytes.Count(b, []byte("\n"))))
	return len(b), nil
}

// TestStrangersDoNotFillTheLog checks that only a few connections without TLS are logged.
func TestStrangersDoNotFillTheLog(t *testing.T) {
	var log lines
	base, _ := locked(t, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	for range 300 {
		c, err := net.Dial("tcp", strings.TrimPrefix(base, "https://"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
		_, _ = io.Copy(io.Discard, c) // returns when the connection is refused
		c.Close()
	}
	if n := log.n.Load(); n == 0 || n > 100 {
		t.Errorf("the log has %d lines", n)
	}
}
