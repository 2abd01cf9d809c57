// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"fmt"
	"io"
	"io/fs"
	"os"
)

// OpenRegular opens a file for reading, and returns its size in bytes. Whatever is no regular file is refused before it is
// opened: a FIFO waits for a writer for ever, a device has no end, and some do things when they are opened. Errors say what to do.
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

// irregular says what is no regular file; empty for one.
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

// ReadRegular reads a regular file of at most that many bytes; what says what a longer one cannot be.
func ReadRegular(path string, most int64, what string) ([]byte, error) {
	f, size, err := OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var b []byte
	if size <= most { // the file may grow
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
