// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// escape is the key that cuts the machine's power: ctrl-], as in telnet.
const escape = 0x1d

// A terminal is this process's standard input. If that is a terminal, it is in raw mode until restore is called; it may
// also be something else, such as a pipe.
type terminal struct {
	old *term.State // nil: standard input is not a terminal
}

func openTerminal() (*terminal, error) {
	t := &terminal{}
	fd := int(os.Stdin.Fd())
	if !term.IsTerminal(fd) {
		return t, nil
	}
	var err error
	if t.old, err = term.MakeRaw(fd); err != nil {
		return nil, fmt.Errorf("terminal: %w", err)
	}
	return t, nil
}

func (t *terminal) restore() {
	if t.old != nil {
		_ = term.Restore(int(os.Stdin.Fd()), t.old) // the terminal may be gone
		fmt.Println()
	}
}

// size returns the terminal's size, or 0, 0 if it is unknown, as for a pipe.
func (t *terminal) size() (rows, columns int) {
	if t.old == nil {
		return 0, 0
	}
	columns, rows, err := term.GetSize(int(os.Stdin.Fd()))
	if err != nil {
		return 0, 0
	}
	return rows, columns
}

// copy copies input to the machine's console until an error, the input's end or, on a terminal, ctrl-]. It reports
// whether it was ctrl-].
func (t *terminal) copy(w io.Writer) (escaped bool) {
	for b := make([]byte, 256); ; {
		n, err := os.Stdin.Read(b)
		i := bytes.IndexByte(b[:n], escape)
		if escaped = i >= 0 && t.old != nil; escaped {
			n = i
		}
		if _, werr := w.Write(b[:n]); escaped || err != nil || werr != nil {
			return escaped
		}
	}
}
