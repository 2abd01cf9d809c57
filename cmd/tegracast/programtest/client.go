// SPDX-License-Identifier: Apache-2.0

package programtest

import (
	"net/http"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/token"

	"github.com/tegracast/tegracast/cmd/tegracast/folders"
)

// Client sends requests with the token that a serve process has written to this process's state folder.
var Client = &http.Client{Transport: WithToken(http.DefaultTransport)}

// WithToken returns a transport that adds the same token to requests as Client.
func WithToken(t http.RoundTripper) http.RoundTripper {
	return WithKey(t, func() (string, error) { return token.Read(folders.StateOrUser()) })
}

// WithKey returns a transport that adds a token or a password to requests.
func WithKey(t http.RoundTripper, key func() (string, error)) http.RoundTripper {
	return holder{t, key}
}

type holder struct {
	http.RoundTripper
	key func() (string, error)
}

// RoundTrip implements http.RoundTripper.
func (h holder) RoundTrip(r *http.Request) (*http.Response, error) {
	key, err := h.key()
	if err != nil {
		return nil, err
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+key)
	return h.RoundTripper.RoundTrip(r)
}

// Page returns the address of a serve process's page, with Client's token. The process must have answered before.
func Page(t testing.TB, base string) string {
	t.Helper()
	key, err := token.Read(folders.StateOrUser())
	if err != nil {
		t.Fatal(err)
	}
	return base + "/?token=" + key
}
