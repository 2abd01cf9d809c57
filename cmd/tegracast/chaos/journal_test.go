// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// A journal has what the test has done and seen, with the times, and what is wrong. Any goroutine may write it.
type journal struct {
	began time.Time
	mu    sync.Mutex
	lines []string
	wrong []string
}

func newJournal() *journal { return &journal{began: time.Now()} }

func (j *journal) say(format string, values ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf("%8.3f  %s", time.Since(j.began).Seconds(), fmt.Sprintf(format, values...)))
}

// fail notes a fault of the program.
func (j *journal) fail(format string, values ...any) {
	text := fmt.Sprintf(format, values...)
	j.say("WRONG: %s", text)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.wrong = append(j.wrong, text)
}

// failed reports whether something is wrong.
func (j *journal) failed() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.wrong) > 0
}

// tell has the test fail by what is wrong, and shows everything then, or in any case with -v.
func (j *journal) tell(t *testing.T) {
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
