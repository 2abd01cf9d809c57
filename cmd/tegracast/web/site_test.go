// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"crypto/x509"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/pipeline"
)

// TestLock checks that the page shows the configuration unless it is locked.
func TestLock(t *testing.T) {
	for lock, want := range map[bool]int{false: http.StatusOK, true: http.StatusNotFound} {
		var log bytes.Buffer
		w := &Site{Out: io.Discard, State: t.TempDir(), Config: Config{
			Stats: func() pipeline.Stats { return pipeline.Stats{} }, Health: func() (bool, error) { return true, nil },
			Outputs: func() []Output { return nil }, Configurator: editor{}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		}}
		if err := w.Open(t.Context(), config.Web{Listen: "127.0.0.1:0", Lock: lock}); err != nil {
			t.Fatal(err)
		}
		answer, err := http.Get(*w.Page.Load() + "/api/v1/config?token=" + w.token)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		w.Close()
		if answer.StatusCode != want {
			t.Errorf("locked: %v: status %d, want %d: %s", lock, answer.StatusCode, want, &log)
		}
	}
}

// TestCertificateExpires checks that a warning comes within the last 30 days of a certificate, and not before.
func TestCertificateExpires(t *testing.T) {
	end := time.Date(2030, 3, 31, 12, 0, 0, 0, time.UTC)
	for now, want := range map[time.Time]bool{end.AddDate(0, 0, -31): false, end.AddDate(0, 0, -29): true, end.AddDate(0, 0, 1): true} {
		var log bytes.Buffer
		warnExpiry(slog.New(slog.NewTextHandler(&log, nil)), "web.crt", &x509.Certificate{NotAfter: end}, now)
		if strings.Contains(log.String(), "file=web.crt expires=2030-03-31") != want {
			t.Errorf("%v: %q, want a warning %v", now, &log, want)
		}
	}
}
