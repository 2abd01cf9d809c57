// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"
)

// escape is ctrl-], as in telnet.
const escape = 0x1d

// terminal is this process's, raw while the machine has it. Standard input may be a pipe as well.
type terminal struct {
	old *term.State // nil for a pipe
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
		_ = term.Restore(int(os.Stdin.Fd()), t.old) // it may have gone
		fmt.Println()
	}
}

// size is 0, 0 for a pipe.
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

// copy types what is read at the machine's console, until the end or ctrl-], which it reports.
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
