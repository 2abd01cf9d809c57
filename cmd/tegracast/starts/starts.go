// SPDX-License-Identifier: Apache-2.0

// Package starts counts starts of the service that came to nothing.
package starts

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A Backoff counts starts that came to nothing, in a file that outlives the process, and has the next one wait: not every
// release of systemd can (RestartSteps= came with 254). The zero value waits for nothing.
type Backoff struct{ file string }

// Bounds of waiting.
const (
	firstWait = time.Second // after the second failure in a row; it doubles
	lastWait  = 30 * time.Second
	Settled   = time.Minute // who has run so long has not failed
)

// In keeps the file in a folder; an empty name: there is none.
func In(dir string) Backoff {
	if dir == "" {
		return Backoff{}
	}
	return Backoff{filepath.Join(dir, "failures")}
}

// failures is how many starts in a row have come to nothing; a file that cannot be read is none.
func (b Backoff) failures() int {
	text, err := os.ReadFile(b.file)
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || n < 0 || n > 1e6 {
		return 0
	}
	return n
}

// pause is how long a start waits after n failures: one is tried again at once.
func pause(n int) time.Duration {
	if n < 2 {
		return 0
	}
	return min(firstWait<<min(n-2, 16), lastWait)
}

// Begin counts this start as a failure until Forget says otherwise, and waits. It returns false when ctx ends first.
func (b Backoff) Begin(ctx context.Context, log *slog.Logger) bool {
	if b.file == "" {
		return true
	}
	n := b.failures()
	b.write(log, n+1)
	wait := pause(n)
	if wait == 0 {
		return true
	}
	log.Warn("previous starts failed: waiting before this start", "failures", n, "wait", wait)
	select {
	case <-time.After(wait):
		return true
	case <-ctx.Done():
		return false
	}
}

// write replaces the file as a whole.
func (b Backoff) write(log *slog.Logger, n int) {
	next := b.file + ".new"
	err := os.WriteFile(next, []byte(strconv.Itoa(n)+"\n"), 0o644)
	if err == nil {
		err = os.Rename(next, b.file)
	}
	if err != nil {
		log.Warn("failed starts cannot be counted: the next start will not wait", "error", err)
	}
}

// Forget says that this start has been good.
func (b Backoff) Forget() {
	if b.file != "" {
		_ = os.Remove(b.file) // it is read as a failure more, at worst
	}
}
