// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"io"
	"os"
	"slices"
)

// Next returns up to most messages that it has not returned before, oldest first. An empty list means that there are no
// more.
func (s *Store) Next(most int) (list []Message) {
	for len(list) < most && s.unread > 0 {
		m, n, err := parse(s.ahead)
		if errors.Is(err, errCut) {
			err = s.fill(max(n, recordHead))
			if err == nil {
				continue
			}
		}
		if err != nil {
			s.giveUp(err)
			continue
		}
		s.ahead = s.ahead[n:]
		s.unread--
		s.out = append(s.out, place{s.reading, s.offset - int64(len(s.ahead))})
		list = append(list, m)
	}
	return list
}

// fill reads ahead, so that ahead contains at least n bytes if the file has as many. Before the first file, and at the
// end of a file, it opens the next file instead. It returns an error if there is none, or if a file cannot be read or
// ends within a message.
func (s *Store) fill(n int) error {
	if s.reading == nil {
		return s.enter(s.segments[0])
	}
	g := s.reading
	if rest := g.size - s.offset; rest == 0 {
		i := slices.Index(s.segments, g)
		if len(s.ahead) > 0 || i < 0 || i+1 == len(s.segments) {
			return io.ErrUnexpectedEOF
		}
		return s.enter(s.segments[i+1])
	}
	b := make([]byte, len(s.ahead), max(chunk, n))
	copy(b, s.ahead)
	more := b[len(b):min(int64(cap(b)), int64(len(b))+g.size-s.offset)]
	if len(more) == 0 {
		return io.ErrUnexpectedEOF
	}
	if _, err := s.input.ReadAt(more, s.offset); err != nil {
		return err
	}
	s.offset += int64(len(more))
	s.ahead = b[:len(b)+len(more)]
	return nil
}

// enter opens a file and starts reading at its first record that is not safe elsewhere.
func (s *Store) enter(g *segment) error {
	s.close()
	f, err := os.Open(g.path)
	s.reading, s.input, s.offset = g, f, g.from
	return err
}

// leave stops reading a file that is about to be removed.
func (s *Store) leave(g *segment) {
	if s.reading == g {
		s.close()
	}
}

func (s *Store) close() {
	if s.input != nil {
		_ = s.input.Close() // opened for reading only
	}
	s.reading, s.input, s.offset, s.ahead = nil, nil, 0, nil
}

// giveUp drops the unread messages of the file being read, and deletes the file.
func (s *Store) giveUp(err error) {
	g := s.reading
	s.config.Logger.Error("messages are lost: their file cannot be read", "file", g.path, "error", err)
	read := 0
	for _, p := range s.out {
		if p.segment == g {
			read++
		}
	}
	lost := g.left - read
	s.Dropped += uint64(lost)
	s.unread -= lost
	s.close()
	s.remove(g)
}

// Done tells the store that the n oldest messages returned by Next are safe elsewhere.
func (s *Store) Done(n int) {
	for _, p := range s.out[:n] {
		g := p.segment
		if g.gone {
			continue
		}
		g.from = p.end
		if g.left--; g.left == 0 {
			s.leave(g)
			s.remove(g)
		}
	}
	s.out = slices.Delete(s.out, 0, n)
}

// Rewind makes Next return again all messages that Done has not been told about. Those whose file was removed in the
// meantime count as dropped.
func (s *Store) Rewind() {
	for _, p := range s.out {
		if p.segment.gone {
			s.Dropped++
		} else {
			s.unread++
		}
	}
	s.out = nil
	s.close()
}
