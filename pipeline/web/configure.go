// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// maxConfiguration is the longest configuration, in bytes.
const maxConfiguration = 1 << 20

// A Configuration is what the appliance works by.
type Configuration struct {
	Text      string `json:"text"`      // in YAML
	Installed string `json:"installed"` // path of the installed file; empty: it is the default configuration
	Kept      bool   `json:"kept"`      // it was changed, and is kept instead of the installed file
	Keeps     bool   `json:"keeps"`     // a change outlives the process
	Ignored   bool   `json:"ignored"`   // one is kept and not used, since it is wrong or cannot be opened
}

// A Check is what came of a configuration: its mistakes, or what it has changed.
type Check struct {
	Good     bool      `json:"good"`
	Mistakes []Mistake `json:"mistakes,omitempty"` // in the order of the text
	Changed  []string  `json:"changed,omitempty"`  // paths such as outputs[raw].rtp.mtu
	Warning  string    `json:"warning,omitempty"`  // it is used now, and not after a restart, and why
}

// Mistake is one mistake of a configuration.
type Mistake struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Key     string `json:"key"`
	Message string `json:"message"`
}

// A Configurator shows and changes the configuration.
type Configurator interface {
	Configuration() Configuration
	// Check says what is wrong with a text.
	Check(text []byte) Check
	// Configure has the appliance work by a text, and keeps it, if it is good. An error says why a good one cannot be opened: then nothing
	// has changed.
	Configure(ctx context.Context, text []byte) (Check, error)
	// Reset goes back to the installed file, in the same way.
	Reset(ctx context.Context) (Check, error)
}

// addConfiguration lets clients see and change the configuration. Where there is a password, those of this machine say it, too.
func (c *Config) addConfiguration(mux *http.ServeMux) {
	own, places := http.NewCrossOriginProtection(), placesFor(1)
	for pattern, do := range map[string]http.HandlerFunc{
		"GET /api/v1/config":        c.configuration,
		"POST /api/v1/config/check": c.check,
		"PUT /api/v1/config":        c.configure,
		"DELETE /api/v1/config": func(w http.ResponseWriter, r *http.Request) {
			became(w)(c.Configurator.Reset(r.Context()))
		},
	} {
		mux.Handle(pattern, c.locked(own.Handler(places.atMost("see or change the configuration", do))))
	}
}

// locked is private, with the password also for clients of this machine, if there is one: not everyone who has an account there may read
// or change what the administrator has written.
func (c *Config) locked(next http.Handler) http.Handler {
	return c.private(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.door != nil && here(r) && !c.door.admits(w, r) {
			return
		}
		next.ServeHTTP(w, r)
	}))
}

// version names a text.
func version(text string) string { return fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(text))) }

func (c *Config) configuration(w http.ResponseWriter, _ *http.Request) {
	now := c.Configurator.Configuration()
	w.Header().Set("ETag", version(now.Text))
	say(w, http.StatusOK, now)
}

func (c *Config) check(w http.ResponseWriter, r *http.Request) {
	if text, ok := body(w, r); ok {
		say(w, http.StatusOK, c.Configurator.Check(text))
	}
}

// configure takes a text, unless it was made of another one than that of now (RFC 9110 §13.1.1).
func (c *Config) configure(w http.ResponseWriter, r *http.Request) {
	text, ok := body(w, r)
	if !ok {
		return
	}
	if from := r.Header.Get("If-Match"); from != "" && from != "*" && from != version(c.Configurator.Configuration().Text) {
		http.Error(w, "somebody else has changed the configuration meanwhile: load it again", http.StatusPreconditionFailed)
		return
	}
	became(w)(c.Configurator.Configure(r.Context(), text))
}

// became says what came of a change.
func became(w http.ResponseWriter) func(Check, error) {
	return func(ch Check, err error) {
		limit(w)
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusConflict)
		case !ch.Good:
			say(w, http.StatusUnprocessableEntity, ch)
		default:
			say(w, http.StatusOK, ch)
		}
	}
}

// body reads a request's body, or refuses it.
func body(w http.ResponseWriter, r *http.Request) (text []byte, ok bool) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxConfiguration))
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		http.Error(w, fmt.Sprintf("a configuration has at most %d bytes", maxConfiguration), http.StatusRequestEntityTooLarge)
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
	return text, err == nil
}

func say(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	limit(w)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
