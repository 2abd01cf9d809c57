// SPDX-License-Identifier: Apache-2.0

// Package files opens files only if they are regular, and replaces files as a whole.
package files

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// OpenRegular opens a regular file for reading, and returns its size in bytes. It refuses everything else before
// opening it: opening a FIFO waits for a writer forever, a device has no end, and opening some devices has side
// effects. Its errors say how to fix the problem.
func OpenRegular(path string) (*os.File, int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: correct the path, or its permissions", err)
	}
	if what := irregular(info.Mode()); what != "" {
		return nil, 0, fmt.Errorf("%s is %s, not a regular file: name a file", path, what)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: correct the path, or its permissions", err)
	}
	return f, info.Size(), nil
}

// irregular describes a file that is not regular, or returns "" for a regular one.
func irregular(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return ""
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	}
	return "a device"
}

// ReadRegular reads a regular file of at most most bytes. what describes the expected content in the error for a longer
// file.
func ReadRegular(path string, most int64, what string) ([]byte, error) {
	f, size, err := OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var b []byte
	if size <= most { // the file may grow meanwhile
		b, err = io.ReadAll(io.LimitReader(f, most+1))
	}
	switch {
	case err != nil:
		return nil, err
	case max(size, int64(len(b))) > most:
		return nil, fmt.Errorf("%s is longer than %d bytes: that cannot be %s", path, most, what)
	}
	return b, nil
}

// WriteWhole writes a file under a temporary name in the same folder, and then renames it to path. Readers see either
// the old content or all of the new, and a link at path is replaced, not followed (rename(2), O_EXCL in open(2)).
// WriteWhole does not wait for the disk.
func WriteWhole(path string, mode fs.FileMode, write func(io.Writer) error) error {
	return writeWhole(path, mode, func(f *os.File) error { return write(f) })
}

// WriteSynced is WriteWhole with a text. After a loss of power the file is either as before or has all of the text.
func WriteSynced(path string, mode fs.FileMode, text []byte) error {
	err := writeWhole(path, mode, func(f *os.File) error {
		_, err := f.Write(text)
		return errors.Join(err, f.Sync())
	})
	if err != nil {
		return err
	}
	return SyncFolder(filepath.Dir(path))
}

func writeWhole(path string, mode fs.FileMode, write func(*os.File) error) error {
	next := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"-"+rand.Text()[:8])
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	if err = errors.Join(write(f), f.Close()); err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next))
	}
	return nil
}

// WriteText calls WriteWhole with a text.
func WriteText(path string, mode fs.FileMode, text []byte) error {
	return WriteWhole(path, mode, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// WriteLasting replaces the content of a file, or creates it, in a folder that only this program writes to. After a
// loss of power the file is either as before or has all of the new content.
func WriteLasting(path string, mode fs.FileMode, text []byte) error {
	next := path + ".new" // a fixed name, so that a leftover from a loss of power is overwritten
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next))
	}
	return SyncFolder(filepath.Dir(path))
}

// SyncFolder makes the names in a folder durable against a loss of power.
func SyncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
