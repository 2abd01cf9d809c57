// SPDX-License-Identifier: Apache-2.0

package web

import (
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const secret = "correct horse battery"

// locked serves by TLS and a password. client trusts it.
func locked(t *testing.T) (base string, client *http.Client) {
	t.Helper()
	example := httptest.NewTLSServer(nil) // has a certificate of example.com and 127.0.0.1
	t.Cleanup(example.Close)
	s := &state{ready: true}
	base = run(t, Config{
		Listen: "127.0.0.1:0", Stats: stats, Health: s.health, Outputs: func() []Output { return nil },
		Trigger: func(string, string) (bool, error) { return true, nil }, Configurator: editor{},
		Access: &Access{Certificate: example.TLS.Certificates[0], Password: secret},
	})
	return strings.Replace(base, "http:", "https:", 1), example.Client()
}

// ask asks as another machine does: by a name that is not of this one.
func ask(t *testing.T, client *http.Client, method, url string, change func(*http.Request)) (status int, body string, header http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "camera.example"
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

// TestAccess: with the password another machine gets everything, without it only whether the appliance is well; this machine needs none.
func TestAccess(t *testing.T) {
	base, client := locked(t)
	basic := func(r *http.Request) { r.SetBasicAuth("anyone", secret) }
	bearer := func(r *http.Request) { r.Header.Set("Authorization", "bearer "+secret) }
	here := func(r *http.Request) { r.Host = "" }
	for _, path := range []string{"/", "/page.js", "/api/v1/status", "/metrics", "/x.sdp", "/record/x/trigger"} {
		method := map[bool]string{true: http.MethodPost, false: http.MethodGet}[strings.HasPrefix(path, "/record")]
		status, _, header := ask(t, client, method, base+path, nil)
		if status != http.StatusUnauthorized || !strings.HasPrefix(header.Get("WWW-Authenticate"), "Basic") {
			t.Errorf("%s without a password: status %d, %v", path, status, header)
		}
		if path == "/x.sdp" {
			continue
		}
		for name, by := range map[string]func(*http.Request){"Basic": basic, "Bearer": bearer, "this machine": here} {
			if status, body, _ := ask(t, client, method, base+path, by); status != http.StatusOK {
				t.Errorf("%s by %s: status %d: %s", path, name, status, body)
			}
		}
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if status, _, _ := ask(t, client, http.MethodGet, base+path, nil); status != http.StatusOK {
			t.Errorf("%s: status %d", path, status)
		}
	}
	if status, _, _ := ask(t, client, http.MethodPost, base+"/record/x/trigger", func(r *http.Request) {
		basic(r)
		r.Header.Set("Origin", "https://elsewhere.example")
		r.Header.Set("Sec-Fetch-Site", "cross-site")
	}); status != http.StatusForbidden {
		t.Errorf("a page of another site triggers: status %d", status)
	}
	plain, err := http.Get(strings.Replace(base, "https:", "http:", 1))
	if err == nil {
		plain.Body.Close()
		if plain.StatusCode != http.StatusBadRequest {
			t.Errorf("without TLS: status %d", plain.StatusCode)
		}
	}
}

// TestWrongPasswords: after ten wrong ones an address has to wait, with the right one, too; this machine by its own name has not.
func TestWrongPasswords(t *testing.T) {
	base, client := locked(t)
	wrong := func(r *http.Request) { r.SetBasicAuth("", "wrong") }
	for i := range 10 {
		if status, _, _ := ask(t, client, http.MethodGet, base+"/metrics", wrong); status != http.StatusUnauthorized {
			t.Fatalf("wrong password %d: status %d", i+1, status)
		}
	}
	right := func(r *http.Request) { r.SetBasicAuth("", secret) }
	status, body, header := ask(t, client, http.MethodGet, base+"/metrics", right)
	if status != http.StatusTooManyRequests || header.Get("Retry-After") == "" || strings.Contains(body, secret) {
		t.Errorf("status %d, %v: %s", status, header, body)
	}
	if status, _, _ := ask(t, client, http.MethodGet, base+"/", func(r *http.Request) { r.Host = "" }); status != http.StatusOK {
		t.Errorf("this machine: status %d", status)
	}
}

func TestAccessRefuses(t *testing.T) {
	for _, a := range []Access{{Password: secret}, {Certificate: tls.Certificate{Certificate: [][]byte{{1}}}, Password: "short"}} {
		if _, err := New(Config{Listen: "127.0.0.1:0", Stats: stats, Health: (&state{}).health, Access: &a}); !errors.Is(err, ErrAccess) {
			t.Errorf("%+v: %v", a, err)
		}
	}
}
