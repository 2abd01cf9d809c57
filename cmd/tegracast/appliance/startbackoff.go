// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tegracast/tegracast/pipeline/files"
)

// A startBackoff counts failed starts in a row, in a file that outlives the process, and delays the next start, because
// not every release of systemd can increase its delay (RestartSteps= came with 254). The zero value delays nothing.
type startBackoff struct{ file string }

// Durations and limits of the wait before a start.
const (
	firstWait = time.Second // after the second failure in a row; doubles with each further one
	lastWait  = 30 * time.Second
	// A killed process leaves no reason. The kernel kills processes when memory is short, which is temporary, so the
	// delay after a kill is at most killedWait if there are fewer than mostKills failures in a row.
	killedWait   = 3 * time.Second
	mostKills    = 12
	settledAfter = time.Minute // a run of this length is no failure
	maxCount     = 64          // maximum size of the file in bytes
)

// startsIn returns a startBackoff with its file in a folder. An empty name means that there is no file.
func startsIn(dir string) startBackoff {
	if dir == "" {
		return startBackoff{}
	}
	return startBackoff{filepath.Join(dir, "failures")}
}

const killed = "killed" // in the file from Begin until Failed or Forget: the start has not ended by itself

// failures returns the number of failed starts in a row, and whether the latest one was killed. An unreadable file
// counts as no failures.
func (b startBackoff) failures() (n int, wasKilled bool) {
	text, err := files.ReadRegular(b.file, maxCount, "a count of starts")
	if err != nil {
		return 0, false
	}
	count, how, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	if n, err = strconv.Atoi(count); err != nil || n < 0 || n > 1e6 {
		return 0, false
	}
	return n, how == killed
}

// pause returns the delay of a start after n failures. After one failure there is none.
func pause(n int, wasKilled bool) time.Duration {
	if n < 2 {
		return 0
	}
	wait := min(firstWait<<min(n-2, 16), lastWait)
	if wasKilled && n < mostKills {
		return min(wait, killedWait)
	}
	return wait
}

// Begin counts this start as a failure until Forget is called, and waits if previous starts failed. It returns false if
// ctx ends first.
func (b startBackoff) Begin(ctx context.Context, log *slog.Logger) bool {
	if b.file == "" {
		return true
	}
	n, wasKilled := b.failures()
	b.write(log, fmt.Sprintf("%d %s", n+1, killed))
	wait := pause(n, wasKilled)
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

// write replaces the file atomically.
func (b startBackoff) write(log *slog.Logger, text string) {
	if err := files.WriteText(b.file, 0o644, []byte(text+"\n")); err != nil {
		log.Warn("failed starts cannot be counted: the next start will not wait", "error", err)
	}
}

// Failed records that this start has ended by itself, with an error.
func (b startBackoff) Failed(log *slog.Logger) {
	if b.file == "" {
		return
	}
	if n, wasKilled := b.failures(); wasKilled {
		b.write(log, strconv.Itoa(n))
	}
}

// Forget records that this start is no failure, and forgets the failures before it.
func (b startBackoff) Forget() {
	if b.file != "" {
		_ = os.Remove(b.file) // at worst one failure too many is counted
	}
}
