// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/record/mcap"
)

// The file of a ring has a gap after its header: a record that readers skip, whatever its contents are. It covers the
// frames that are no longer needed, whose disk space is freed (fallocate(2), FALLOC_FL_PUNCH_HOLE). This way the file
// is well-formed at any time, and nothing is copied.

// ErrNoHoles means that a file system does not support freeing the space of old frames.
var ErrNoHoles = errors.New("the file system does not support holes in files, which a trigger needs: use ext4, XFS, Btrfs or tmpfs")

// newRing creates a file whose gap has, at its end, room for size bytes of frames of the previous file.
func (s *Sink) newRing(size int64) (*segment, error) {
	g := &segment{begun: time.Now()}
	path := filepath.Join(s.config.Directory, s.config.Name+"-ring"+Extension)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // left by a process that was killed
		return nil, fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	var err error
	if g.plain, err = create(path); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	s.writing.add(&g.openFile, path)
	g.idle.Store(true)
	if err = s.writeHead(g); err == nil {
		g.writer.Offset += uint64(page + size)
		g.allocated = g.head + page + size
		g.written = g.allocated
		err = g.forget(g.head, g.allocated)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), g.remove())
	}
	return g, nil
}

// forget makes the gap end at byte to, and frees the disk space from byte from to byte to, except that of the gap's
// first page.
func (g *segment) forget(from, to int64) error {
	if err := g.skip(to); err != nil {
		return err
	}
	from = max(from, g.head+page) // the page before contains the header of the gap
	if from >= to {
		to = from + page // tests support for holes with the first page
	}
	err := g.fallocate(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, from, to-from)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return ErrNoHoles
	}
	return os.NewSyscallError("fallocate", err)
}

// skip makes the gap end at byte to.
func (g *segment) skip(to int64) error {
	_, err := g.plain.WriteAt(mcap.AppendGap(nil, to-g.head), g.head)
	return err
}

// fill copies size bytes of the previous file to byte to, which is in the gap, and makes the gap end there. File
// systems that support it share the blocks instead of copying.
func (g *segment) fill(before *segment, from, to, size int64) error {
	end, begin := to+size, to
	for to < end {
		n, err := unix.CopyFileRange(int(before.plain.Fd()), &from, int(g.plain.Fd()), &to, int(end-to), 0)
		if err == nil && n == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("copy_file_range", err)
		}
	}
	if err := g.file.Sync(); err != nil { // before the gap is shortened
		return err
	}
	return g.skip(begin)
}

// keep completes and closes the file of a ring, with the frames of an event and the messages in e.late. No write to the
// file may be in progress.
func (g *segment) keep(e event) error {
	err := g.plain.Truncate(e.to)
	g.writer.Keep(uint64(e.from), uint64(e.to))
	g.writer.Offset = uint64(e.to)
	if err == nil && e.from > g.head {
		err = g.fallocate(unix.FALLOC_FL_COLLAPSE_RANGE, g.head, e.from-g.head)
		switch {
		case err == nil:
			g.writer.Move(g.head - e.from)
		case errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL): // the gap remains
			err = g.skip(e.from)
		default:
			err = os.NewSyscallError("fallocate", err)
		}
	}
	if err == nil && len(e.late) > 0 {
		at := int64(g.writer.Offset)
		_, err = g.plain.WriteAt(g.writer.Messages(nil, page, e.late...), at)
	}
	if err != nil {
		return errors.Join(err, g.close())
	}
	return g.end()
}
