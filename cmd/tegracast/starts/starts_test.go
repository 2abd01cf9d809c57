// SPDX-License-Identifier: Apache-2.0

package starts

import (
	"context"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// TestBackoff: starts that fail wait longer and longer, a good one forgets them, and a file that a power cut has spoilt is
// no failure.
func TestBackoff(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		b := In(dir)
		waits := func(want ...time.Duration) {
			t.Helper()
			for i, w := range want {
				begin := time.Now()
				if !b.Begin(t.Context(), log) || time.Since(begin) != w {
					t.Errorf("start %d waited %v, want %v", i, time.Since(begin), w)
				}
			}
		}
		waits(0, 0, time.Second, 2*time.Second, 4*time.Second, 8*time.Second, 16*time.Second, 30*time.Second, 30*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if b.Begin(ctx, log) {
			t.Error("it starts although it was stopped while it waited")
		}
		b.Forget()
		waits(0, 0, time.Second)
		for _, spoilt := range []string{"", "\x00\x00", "-3", "99999999999999999999"} {
			if err := os.WriteFile(b.file, []byte(spoilt), 0o600); err != nil {
				t.Fatal(err)
			}
			waits(0)
		}
	})
}
