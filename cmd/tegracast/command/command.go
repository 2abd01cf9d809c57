// SPDX-License-Identifier: Apache-2.0

// Package command is what the commands of tegracast share: where they write, and how they end.
package command

import (
	"errors"
	"io"
	"log/slog"

	"golang.org/x/term"
)

// Env is what a command works in.
type Env struct {
	Out, Err io.Writer
	Log      *slog.Logger
}

// A UsageError ends the program with status 2: the command line asks for what cannot be.
type UsageError struct{ Err error }

func (u UsageError) Error() string { return u.Err.Error() }

func (u UsageError) Unwrap() error { return u.Err }

// ErrChecked says that the run found what it looked for (losses, mismatches) and has reported it: status 1, or 2 in a UsageError, no log.
var ErrChecked = errors.New("check failed")

// Terminal reports whether somebody looks at what is written to w.
func Terminal(w io.Writer) bool {
	f, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}
