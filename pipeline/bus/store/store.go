// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrTaken means that another process has the folder.
var ErrTaken = errors.New("another process keeps its messages there")

// Config is a store.
type Config struct {
	Folder string // of it alone; it is made where it is not there
	Limit  int64  // bytes of its files together; a message may have an eighth of it
	Logger *slog.Logger
}

const (
	parts      = 8         // the limit is so many files, of which the oldest goes as a whole
	maxSegment = 4 << 20   // bytes of a file
	chunk      = 128 << 10 // bytes that are read at a time
)

// A Store is used by one goroutine.
type Store struct {
	// ID, Epoch and Numbers are those of the messages to come: Numbers has the last one of each subject.
	ID, Epoch uint64
	Numbers   map[string]uint64
	// Dropped counts messages that had to make room, or that were damaged.
	Dropped uint64

	config   Config
	lock     *os.File
	segments []*segment // the oldest first
	writing  *os.File   // of target; nil: the next message begins a file
	target   *segment
	next     uint64 // number of the next file
	size     int64
	listed   bool // the name of target is on the disk for sure
	dirty    bool

	reading *segment // nil: the oldest one
	input   *os.File // of reading
	offset  int64    // in it: of the first byte that is not in ahead
	ahead   []byte
	unread  int
	out     []place // of messages that Next has returned, and Done has not heard of
}

// A place is where a message is.
type place struct {
	segment *segment
	end     int64
}

// Open opens a store, with what an earlier process has left there. ErrTaken: the folder has an owner. Other errors are of the disk.
func Open(c Config) (*Store, error) {
	s := &Store{config: c, next: 1}
	if err := os.MkdirAll(c.Folder, 0o700); err != nil {
		return nil, err
	}
	var err error
	if s.lock, err = os.OpenFile(filepath.Join(c.Folder, "lock"), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, err
	}
	if err := unix.Flock(int(s.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrTaken
		}
		return nil, errors.Join(fmt.Errorf("%s: %w", c.Folder, err), s.lock.Close())
	}
	if err := s.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", c.Folder, err), s.lock.Close())
	}
	return s, nil
}

func (s *Store) load() error {
	st := s.readState()
	list, err := s.segmentsIn()
	if err != nil {
		return err
	}
	for _, g := range list {
		from := int64(0)
		if g.number == st.Segment {
			from = st.Offset
		}
		if err := s.recover(g, from); err != nil {
			return err
		}
		s.next = g.number + 1
		s.size += g.size
		s.segments = append(s.segments, g)
		if s.unread += g.left; g.left == 0 {
			s.remove(g)
		}
	}
	return s.begin(st)
}

// Left is how many messages are kept, and Unread how many of them Next has not returned yet. Size is how many bytes the files have.
func (s *Store) Left() (n int) {
	for _, g := range s.segments {
		n += g.left
	}
	return n
}

// Unread is how many messages Next has not returned yet.
func (s *Store) Unread() int { return s.unread }

// Size is how many bytes the files have.
func (s *Store) Size() int64 { return s.size }

// Append keeps messages behind those that there are. The oldest make room, also where the disk is full. It returns how many are kept;
// an error says why the others are not.
func (s *Store) Append(list []Message) (kept int, err error) {
	for kept < len(list) {
		n, b := 0, []byte(nil)
		for n == 0 || kept+n < len(list) && len(b) < chunk {
			m := &list[kept+n]
			if len(m.Subject) > MaxSubject || len(m.Data) > MaxData || size(m) > s.segmentLimit() {
				return kept, fmt.Errorf("%w: %s, %d bytes", errLimits, m.Subject, len(m.Data))
			}
			if n > 0 && int64(len(b))+size(m) > s.segmentLimit() {
				break
			}
			b = appendRecord(b, m)
			n++
		}
		if err := s.write(b, n); err != nil {
			return kept, err
		}
		kept += n
	}
	return kept, nil
}

func (s *Store) segmentLimit() int64 { return min(maxSegment, s.config.Limit/parts) }

// write appends n records. A disk that is full is asked again when the oldest file is gone.
func (s *Store) write(b []byte, n int) error {
	for s.size+int64(len(b)+len(magic)) > s.config.Limit && len(s.segments) > 0 {
		s.dropOldest()
	}
	for {
		err := s.put(b, n)
		if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) || len(s.segments) == 0 {
			return err
		}
		s.dropOldest()
	}
}

func (s *Store) put(b []byte, n int) error {
	if s.writing == nil || s.target.size+int64(len(b)) > s.segmentLimit() {
		if err := s.open(); err != nil {
			return err
		}
	}
	g := s.target
	if _, err := s.writing.WriteAt(b, g.size); err != nil {
		return errors.Join(err, s.writing.Truncate(g.size))
	}
	g.size += int64(len(b))
	g.left += n
	s.size += int64(len(b))
	s.unread += n
	s.dirty = true
	return nil
}

// dropOldest gives up the oldest file. Messages of it that Next has returned may still become safe.
func (s *Store) dropOldest() {
	g := s.segments[0]
	lost := g.left
	for _, p := range s.out {
		if p.segment == g {
			lost--
		}
	}
	s.Dropped += uint64(lost)
	s.unread -= lost
	s.leave(g)
	s.remove(g)
}

// Sync puts what was appended on the disk for sure.
func (s *Store) Sync() error {
	if s.writing == nil || !s.dirty {
		return nil
	}
	if err := s.writing.Sync(); err != nil {
		return err
	}
	s.dirty = false
	if s.listed {
		return nil
	}
	s.listed = true
	return syncFolder(s.config.Folder)
}

// Close ends the store in order. numbers are the last ones of each subject.
func (s *Store) Close(numbers map[string]uint64) error {
	s.Rewind()
	st := state{ID: fmt.Sprintf("%016x", s.ID), Epoch: s.Epoch, Ended: true, Numbers: numbers}
	if len(s.segments) > 0 {
		st.Segment, st.Offset = s.segments[0].number, s.segments[0].from
	}
	err := s.seal()
	if err == nil {
		err = s.writeState(st)
	}
	return errors.Join(err, s.lock.Close())
}
