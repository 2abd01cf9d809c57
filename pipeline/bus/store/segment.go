// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A segment is a file of records.
type segment struct {
	number uint64
	path   string
	from   int64 // offset of the first record that Done has not been told about
	size   int64
	left   int // number of records from that offset on
	gone   bool
}

const (
	extension = ".messages"
	magic     = "TEGRABUS" // at the beginning of each file
)

func (s *Store) pathOf(number uint64) string {
	return filepath.Join(s.config.Folder, fmt.Sprintf("%020d%s", number, extension))
}

// segmentsIn returns the files of the folder, oldest first.
func (s *Store) segmentsIn() ([]*segment, error) {
	files, err := os.ReadDir(s.config.Folder)
	if err != nil {
		return nil, err
	}
	var list []*segment
	for _, f := range files {
		name, is := strings.CutSuffix(f.Name(), extension)
		n, err := strconv.ParseUint(name, 10, 64)
		if path := s.pathOf(n); is && err == nil && filepath.Base(path) == f.Name() && f.Type().IsRegular() {
			list = append(list, &segment{number: n, path: path})
		}
	}
	slices.SortFunc(list, func(a, b *segment) int {
		if a.number < b.number {
			return -1
		}
		return 1
	})
	return list, nil
}

// scan counts the records at offset from or later, and returns the offset at which the last valid record ends. It stops
// at the end, or returns an error if the file's head is wrong, or at the first record that is incomplete or damaged.
func scan(r io.Reader, from int64) (end int64, records int, err error) {
	in := bufio.NewReaderSize(r, chunk)
	head := make([]byte, len(magic))
	if _, err := io.ReadFull(in, head); err != nil || string(head) != magic {
		return 0, 0, errDamaged
	}
	end = int64(len(magic))
	var b []byte
	for {
		first, err := in.Peek(recordHead)
		if len(first) == 0 && errors.Is(err, io.EOF) {
			return end, records, nil
		}
		n, err := length(first)
		if err != nil {
			return end, records, err
		}
		b = slices.Grow(b[:0], n)[:n]
		if _, err := io.ReadFull(in, b); err != nil {
			return end, records, errCut
		}
		if _, _, err := parse(b); err != nil {
			return end, records, err
		}
		if end >= from {
			records++
		}
		end += int64(n)
	}
}

// recover examines a file of an earlier process and cuts off what is incomplete or damaged.
func (s *Store) recover(g *segment, from int64) error {
	f, err := os.OpenFile(g.path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	g.from = max(from, int64(len(magic)))
	damage := error(nil)
	g.size, g.left, damage = scan(f, g.from)
	g.from = min(g.from, g.size)
	if damage != nil {
		s.config.Logger.Warn("messages of an earlier run are lost: their file has been cut off or damaged", "file", g.path, "at", g.size)
		return f.Truncate(g.size)
	}
	return nil
}

func (s *Store) remove(g *segment) {
	g.gone = true
	s.size -= g.size
	s.segments = slices.DeleteFunc(s.segments, func(x *segment) bool { return x == g })
	if s.writing != nil && s.target == g {
		_ = s.writing.Close() // nobody needs its contents
		s.writing, s.target = nil, nil
	}
	if err := os.Remove(g.path); err != nil {
		s.config.Logger.Warn("a file of messages that are safe elsewhere cannot be deleted: they will be sent again", "error", err)
	}
}

// open starts a new file.
func (s *Store) open() error {
	if err := s.seal(); err != nil {
		return err
	}
	g := &segment{number: s.next, path: s.pathOf(s.next), from: int64(len(magic)), size: int64(len(magic))}
	f, err := os.OpenFile(g.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(magic); err != nil {
		return errors.Join(err, f.Close(), os.Remove(g.path))
	}
	s.next++
	s.writing, s.target, s.segments = f, g, append(s.segments, g)
	s.size += g.size
	s.listed = false
	return nil
}

// seal closes the file being written.
func (s *Store) seal() error {
	if s.writing == nil {
		return nil
	}
	err := errors.Join(s.Sync(), s.writing.Close())
	s.writing, s.target = nil, nil
	return err
}
