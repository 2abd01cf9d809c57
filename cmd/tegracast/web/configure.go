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

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
)

// maxConfiguration is the maximum size of a configuration in bytes.
const maxConfiguration = 1 << 20

// A Configuration is the current configuration of the appliance.
type Configuration struct {
	Text      string `json:"text"`      // YAML
	Installed string `json:"installed"` // path of the installed file; empty: the default configuration
	Kept      bool   `json:"kept"`      // a stored text is used in place of the installed file
	Keeps     bool   `json:"keeps"`     // a change is stored, so that it outlives the process
	Ignored   bool   `json:"ignored"`   // a stored text exists but is not used, because it is invalid or cannot be opened
}

// A Check is the result of checking or applying a configuration: its mistakes, or the changes.
type Check struct {
	Good     bool               `json:"good"`
	Mistakes []yamlfile.Mistake `json:"mistakes,omitempty"` // in the order of the text
	Changed  []string           `json:"changed,omitempty"`  // what was changed, such as outputs[raw].rtp.mtu
	Warning  string             `json:"warning,omitempty"`  // why the change will not survive a restart; empty: it will
}

// A Configurator shows and changes the configuration.
type Configurator interface {
	Configuration() Configuration
	// Check returns the mistakes in a text.
	Check(text []byte) Check
	// Configure applies a text without mistakes to the appliance and stores it. An error says why a valid text cannot
	// be applied, or that ctx has ended, in which case the change may still be in progress.
	Configure(ctx context.Context, text []byte) (Check, error)
	// Reset applies the installed file to the appliance, as Configure does with a text, and forgets the stored text.
	Reset(ctx context.Context) (Check, error)
}

// addConfiguration adds the handlers that show and change the configuration.
func (c *Config) addConfiguration(mux *http.ServeMux) {
	places := placesFor(1)
	for pattern, do := range map[string]http.HandlerFunc{
		"GET /api/v1/config":        c.configuration,
		"POST /api/v1/config/check": c.check,
		"PUT /api/v1/config":        c.configure,
		"DELETE /api/v1/config": func(w http.ResponseWriter, r *http.Request) {
			became(w)(c.Configurator.Reset(r.Context()))
		},
	} {
		mux.Handle(pattern, places.atMost("see or change the configuration", do))
	}
}

// version returns the ETag of a text.
func version(text string) string { return fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(text))) }

func (c *Config) configuration(w http.ResponseWriter, _ *http.Request) {
	now := c.Configurator.Configuration()
	w.Header().Set("ETag", version(now.Text))
	writeJSON(w, http.StatusOK, now)
}

func (c *Config) check(w http.ResponseWriter, r *http.Request) {
	if text, ok := body(w, r); ok {
		writeJSON(w, http.StatusOK, c.Configurator.Check(text))
	}
}

// configure applies the request's text, unless If-Match names a text other than the current one (RFC 9110 §13.1.1).
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

// became returns a function that answers with the result of a change.
func became(w http.ResponseWriter) func(Check, error) {
	return func(ch Check, err error) {
		limit(w)
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusConflict)
		case !ch.Good:
			writeJSON(w, http.StatusUnprocessableEntity, ch)
		default:
			writeJSON(w, http.StatusOK, ch)
		}
	}
}

// body reads a request's body. If it cannot, it refuses the request and returns false.
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

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	limit(w)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}
