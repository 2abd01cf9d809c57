// SPDX-License-Identifier: Apache-2.0

package flood

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestLogger checks that after a burst few records are logged, which count the others, and that a while later all are
// logged again.
func TestLogger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		log := Logger(slog.New(slog.NewTextHandler(&b, nil)))
		lines := func() int { defer b.Reset(); return strings.Count(b.String(), "\n") }
		log.Debug("nobody wants it")
		for range 10_000 {
			log.With("peer", 1).Info("come")
		}
		if n := lines(); n != logBurst {
			t.Errorf("%d lines, want %d", n, logBurst)
		}
		time.Sleep(logEvery)
		log.WithGroup("g").Info("gone", "reason", "none")
		if text := b.String(); !strings.Contains(text, "gone g.reason=none") || !strings.Contains(text, `not logged before"=9940`) {
			t.Error(text)
		}
		log.Info("come")
		if n := lines(); n != 1 {
			t.Errorf("%d lines, want 1", n)
		}
		time.Sleep(logBurst * logEvery)
		for range logBurst {
			log.Info("come")
		}
		if n := lines(); n != logBurst {
			t.Errorf("%d lines after a while, want %d", n, logBurst)
		}
	})
}
