// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// A journal records what the test has done and seen, with times, and the errors. Its methods may be called concurrently.
type journal struct {
	began time.Time
	mu    sync.Mutex
	lines []string
	wrong []string
}

func newJournal() *journal { return &journal{began: time.Now()} }

func (j *journal) logf(format string, values ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf("%8.3f  %s", time.Since(j.began).Seconds(), fmt.Sprintf(format, values...)))
}

// fail records a fault of the program.
func (j *journal) fail(format string, values ...any) {
	text := fmt.Sprintf(format, values...)
	j.logf("WRONG: %s", text)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.wrong = append(j.wrong, text)
}

// failed reports whether there was an error.
func (j *journal) failed() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.wrong) > 0
}

// report fails the test if there were errors, and shows the journal then, or always with -v.
func (j *journal) report(t *testing.T) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, text := range j.wrong {
		t.Error(text)
	}
	if len(j.wrong) > 0 || testing.Verbose() {
		t.Logf("what has happened:\n%s", strings.Join(j.lines, "\n"))
	}
}
