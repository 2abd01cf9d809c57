// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net/http"
	"strings"
	"testing"
)

// TestConfigurationNeedsThePassword: where there is a password, not everyone on this machine sees or changes the configuration.
func TestConfigurationNeedsThePassword(t *testing.T) {
	base, client := locked(t)
	with := func(r *http.Request) { r.Host = ""; r.SetBasicAuth("anyone", secret) }
	without := func(r *http.Request) { r.Host = "" }
	for method, path := range map[string]string{"GET": "/api/v1/config", "POST": "/api/v1/config/check", "PUT": "/api/v1/config", "DELETE": "/api/v1/config"} {
		if status, body, _ := ask(t, client, method, base+path, without); status != http.StatusUnauthorized || strings.Contains(body, "web") {
			t.Errorf("%s without a password: %d %s", method, status, body)
		}
		if status, _, _ := ask(t, client, method, base+path, with); status == http.StatusUnauthorized {
			t.Errorf("%s with the password: %d", method, status)
		}
	}
}

// TestConfigurationChanges: a text that is too long, that is made of an old one, or that comes from a page of another site is refused.
func TestConfigurationChanges(t *testing.T) {
	base := run(t, Config{Listen: "127.0.0.1:0", Stats: stats, Health: (&state{}).health, Outputs: func() []Output { return nil }, Configurator: editor{}})
	put := func(text, header, value string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, base+"/api/v1/config", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(header, value)
		answer, err := http.DefaultClient.Do(r)
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
