// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"errors"
	"io"
	"log/slog"

	"golang.org/x/term"
)

// Env is the environment of a command.
type Env struct {
	Out, Err io.Writer
	Log      *slog.Logger
}

// A UsageError ends the program with status 2: the command line or the configuration is invalid.
type UsageError struct{ Err error }

func (u UsageError) Error() string { return u.Err.Error() }

func (u UsageError) Unwrap() error { return u.Err }

// ErrChecked means that a check has failed, and that the reasons (losses, mismatches) have been printed. It ends the
// program with status 1, or 2 in a UsageError, without a log record.
var ErrChecked = errors.New("check failed")

// Is reports whether w is a terminal.
func Is(w io.Writer) bool {
	f, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}
