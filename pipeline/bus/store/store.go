// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/files"
)

// ErrTaken means that another process uses the folder.
var ErrTaken = errors.New("another process keeps its messages there")

// Config configures a Store.
type Config struct {
	Folder string // used by this store only; created if missing
	Limit  int64  // maximum bytes of all files together; a message may take at most an eighth of it
	Logger *slog.Logger
}

const (
	parts      = 8         // the limit divided by the size of a file; the oldest file is dropped as a whole
	maxSegment = 4 << 20   // bytes of a file
	chunk      = 128 << 10 // bytes read at a time
)

// A Store keeps messages in the files of a folder. It may be used by one goroutine only.
type Store struct {
	// The caller numbers new messages by ID, Epoch and Numbers. Numbers holds the last number of each subject when the
	// Store was opened.
	ID, Epoch uint64
	Numbers   map[string]uint64
	// Dropped counts messages that were dropped to make room, or because they were damaged.
	Dropped uint64

	config   Config
	lock     *os.File
	segments []*segment // oldest first
	writing  *os.File   // target's file; nil: the next message starts a new file
	target   *segment
	next     uint64 // number of the next file
	size     int64
	listed   bool // target's directory entry has been synced
	dirty    bool

	reading *segment // nil: the oldest one is next
	input   *os.File // reading's file
	offset  int64    // in reading, of the first byte that is not in ahead
	ahead   []byte
	unread  int
	out     []place // of the messages that Next has returned and Done has not been told about
}

// A place locates a message.
type place struct {
	segment *segment
	end     int64
}

// Open opens a store, with the messages that an earlier process left there. The error wraps ErrTaken if another process
// uses the folder; other errors come from the disk.
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
	return s.startEpoch(st)
}

// Left returns the number of messages that are not safe elsewhere.
func (s *Store) Left() (n int) {
	for _, g := range s.segments {
		n += g.left
	}
	return n
}

// Unread returns the number of messages that Next has not returned yet.
func (s *Store) Unread() int { return s.unread }

// Size returns the size of the files in bytes.
func (s *Store) Size() int64 { return s.size }

// Append stores messages after the existing ones. The oldest files are dropped to make room, also when the disk is
// full. Append returns how many messages were stored; an error gives the reason why the others were not.
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

// write appends n records. To stay within the limit, or if the disk is full, it drops the oldest files first.
func (s *Store) write(b []byte, n int) error {
	for s.size+int64(len(b)+len(magic)) > s.config.Limit && len(s.segments) > 0 {
		s.dropOldest()
	}
	for {
		err := s.writeRecords(b, n)
		if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) || len(s.segments) == 0 {
			return err
		}
		s.dropOldest()
	}
}

func (s *Store) writeRecords(b []byte, n int) error {
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

// dropOldest removes the oldest file. Messages in it that Next has returned are not yet counted as dropped, because
// they may still become safe elsewhere.
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

// Sync makes sure that everything appended is on the disk.
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
	return files.SyncFolder(s.config.Folder)
}

// Close closes the store cleanly. numbers holds the last number of each subject.
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
