// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline/codec/v4l2"
	"github.com/tegracast/tegracast/pipeline/ucx"
)

// AttemptArgument is the first argument of doctor's own child. The second one names a library.
const AttemptArgument = "--attempt"

// attemptLimit is the time that a child may take. The driver of a GPU that nobody uses may take seconds to start it.
const attemptLimit = 30 * time.Second

// attempts are the libraries that can be attempted, besides libcufile (filesAttempt), with functions that use them and
// return what they have found.
var attempts = map[string]func() (string, error){"cuda": cudahost.Try, "encoder": v4l2.Try, "ucx": ucx.Try}

// An attempted holds the output of a child.
type attempted struct{ About, Trouble string }

// Attempt uses a library in this process, which it may hang or crash, and prints the result for attempt.
func Attempt(e terminal.Env, library string) error {
	use, known := attempts[library]
	if folder, is := strings.CutPrefix(library, filesAttempt); is {
		use, known = func() (string, error) { return tryFiles(folder) }, true
	}
	if !known {
		return terminal.UsageError{Err: fmt.Errorf("%s %q: no such library", AttemptArgument, library)}
	}
	var result attempted
	var err error
	if result.About, err = use(); err != nil {
		result.Trouble = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	return json.NewEncoder(e.Out).Encode(result)
}

// attempt has a child use a library. program is the start of the command that runs this program. attempt returns what
// the library says about itself, or why it does not work.
func attempt(ctx context.Context, program []string, library string, limit time.Duration) (about string, err error) {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	line := append(program[:len(program):len(program)], "doctor", AttemptArgument, library)
	c := exec.CommandContext(bounded, line[0], line[1:]...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.WaitDelay = time.Second // programs that the library has started may hold the pipes
	var out, errw bytes.Buffer
	c.Stdout, c.Stderr = &out, &errw
	err = c.Run()
	var result attempted
	lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte{'\n'}) // the library may print more before
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case bounded.Err() != nil:
		return "", fmt.Errorf("it has not answered for %v", limit)
	case json.Unmarshal(lines[len(lines)-1], &result) != nil && err == nil:
		return "", errors.New("the process that used it has ended without an answer")
	case err != nil:
		line, _, _ := strings.Cut(strings.TrimSpace(errw.String()), "\n")
		return "", fmt.Errorf("the process that used it has ended: %w: %s", err, line)
	case result.Trouble != "":
		return "", errors.New(result.Trouble)
	}
	return result.About, nil
}
