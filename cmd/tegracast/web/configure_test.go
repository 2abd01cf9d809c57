// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net/http"
	"strings"
	"testing"
)

// TestConfigurationNeedsThePassword checks that the configuration can be neither read nor changed without the password.
func TestConfigurationNeedsThePassword(t *testing.T) {
	base, client := locked(t)
	with := func(r *http.Request) { r.Host = ""; r.SetBasicAuth("anyone", secret) }
	without := func(r *http.Request) { r.Host = "" }
	for method, path := range map[string]string{"GET": "/api/v1/config", "POST": "/api/v1/config/check", "PUT": "/api/v1/config", "DELETE": "/api/v1/config"} {
		if status, body, _ := ask(t, client, method, base+path, without); status != http.StatusUnauthorized || strings.Contains(body, "text") {
			t.Errorf("%s without a password: %d %s", method, status, body)
		}
		if status, _, _ := ask(t, client, method, base+path, with); status == http.StatusUnauthorized {
			t.Errorf("%s with the password: %d", method, status)
		}
	}
}

// TestConfigurationChanges checks that a text is refused if it is too long, is based on an old one, or comes from a page
// of another site.
func TestConfigurationChanges(t *testing.T) {
	base := startServer(t, Config{listen: "127.0.0.1:0", Stats: stats, Health: (&state{}).health, Outputs: func() []Output { return nil }, Configurator: editor{}})
	put := func(text, header, value string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, base+"/api/v1/config", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(header, value)
		answer, err := holder.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	for _, c := range []struct {
		text, header, value string
		want                int
	}{
		{"web: {}", "If-Match", version("web: {}"), http.StatusOK},
		{"web: {}", "If-Match", version("another"), http.StatusPreconditionFailed},
		{"", "Accept", "*/*", http.StatusUnprocessableEntity},
		{strings.Repeat(" ", maxConfiguration+1), "Accept", "*/*", http.StatusRequestEntityTooLarge},
		{"web: {}", "Origin", "http://another.example", http.StatusForbidden},
		{"web: {}", "Sec-Fetch-Site", "cross-site", http.StatusForbidden},
	} {
		if got := put(c.text, c.header, c.value); got != c.want {
			t.Errorf("%.20q with %s: %s: status %d, want %d", c.text, c.header, c.value, got, c.want)
		}
	}
}
