// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"time"
)

// archive is a tar archive in memory.
type archive struct {
	text bytes.Buffer
	w    *tar.Writer
	made time.Time // of the files that are added
	err  error     // the first one
}

func newArchive(made time.Time) *archive {
	a := &archive{made: made}
	a.w = tar.NewWriter(&a.text)
	return a
}

// add appends a file of root, or a folder if the name ends with a slash.
func (a *archive) add(name string, mode int64, text []byte) {
	a.write(&tar.Header{Name: name, Mode: mode, Size: int64(len(text)), ModTime: a.made, Format: tar.FormatGNU}, text)
}

func (a *archive) write(h *tar.Header, text []byte) {
	if a.err != nil {
		return
	}
	a.err = a.w.WriteHeader(h)
	if a.err == nil {
		_, a.err = a.w.Write(text)
	}
}

// bytes ends the archive and returns it.
func (a *archive) bytes() ([]byte, error) {
	err := errors.Join(a.err, a.w.Close())
	return a.text.Bytes(), err
}
