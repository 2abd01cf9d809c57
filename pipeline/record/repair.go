// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/files"
	"github.com/tegracast/tegracast/pipeline/record/mcap"
)

// ErrWritten means that a file is being written, by this process or another one.
var ErrWritten = errors.New("the file is being written")

// A Repaired describes what Repair did with a file.
type Repaired struct {
	Finished bool  // the file was finished already, and is unchanged
	Chunks   int   // in the index that was written
	Left     int   // damaged chunks that are not in the index
	Cut      int64 // bytes of a torn part at the end that were cut off
}

// errInside means that a repair could lose what can still be read.
var errInside = errors.New("it is damaged before its end, so it stays as it is: tegracast record export copies what can be read")

// maxCut is the maximum number of bytes that a repair cuts off, more than a torn chunk can have.
const maxCut = 1 << 30

// letGo limits the time for which the kernel may keep the files of a killed process open, until its writes have ended.
const letGo = time.Second

// torn is the number of chunks at the end of a file whose checksums are verified: those that a power cut may have torn.
const torn = 128

// Repair ends a recording that was not ended, because of a power cut for example: behind its last whole record it
// writes the index, in place of what is torn. The records stay as they are. If it fails, for example because the disk is
// full, the file is unchanged. A file that is damaged before
// its end stays as it is. Errors wrap ErrWritten, mcap.ErrNotMCAP, mcap.ErrDamaged or mcap.ErrNotOwn, or are those of ctx
// or the file.
func Repair(ctx context.Context, path string) (Repaired, error) {
	r, err := repairFile(ctx, path)
	for began := time.Now(); errors.Is(err, ErrWritten) && time.Since(began) < letGo && ctx.Err() == nil; r, err = repairFile(ctx, path) {
		time.Sleep(letGo / 10)
	}
	return r, err
}

// repairFile is Repair without waiting for a process that was killed.
func repairFile(ctx context.Context, path string) (Repaired, error) {
	file, err := openUnused(path)
	if err != nil {
		return Repaired{}, err
	}
	r, err := repair(ctx, file)
	if err = errors.Join(err, file.Close()); err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return r, err
}

// openUnused opens a file that nobody else writes, and locks it. Recordings lock their files; for other writers it asks
// for a lease, which the kernel grants on a local disk if no one has the file open for writing (fcntl(2)).
func openUnused(path string) (*os.File, error) {
	read, _, err := files.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = read.Close() }()
	written := fmt.Errorf("%s: %w: end that first", path, ErrWritten)
	_, leased := unix.FcntlInt(read.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
	if errors.Is(leased, unix.EAGAIN) {
		return nil, written
	}
	_, _ = unix.FcntlInt(read.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	locked := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(locked, unix.EWOULDBLOCK):
		return nil, errors.Join(written, file.Close())
	case locked != nil && leased != nil: // a file system without both
		err := fmt.Errorf("%s: whether it is being written cannot be found out: copy it to a local disk: %w", path, locked)
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func repair(ctx context.Context, file *os.File) (r Repaired, err error) {
	info, err := file.Stat()
	if err != nil {
		return r, err
	}
	f, err := mcap.Open(ctx, file, info.Size())
	if err != nil || f.Finished {
		r.Finished = err == nil
		return r, err
	}
	if f.Damaged() || info.Size()-f.End > maxCut {
		return r, fmt.Errorf("%w: %w", mcap.ErrDamaged, errInside)
	}
	own := false
	for _, c := range f.Channels {
		own = own || c.Metadata["pixels"] != ""
	}
	if !own {
		return r, mcap.ErrNotOwn
	}
	w, tail, left, err := f.Resume(ctx, func(i int) bool {
		if i < len(f.Chunks)-torn {
			return false
		}
		_, err := f.VerifyChunk(i)
		return errors.Is(err, mcap.ErrDamaged)
	})
	if err != nil {
		return r, err
	}
	r.Chunks, r.Left, r.Cut = w.Chunks(), left, info.Size()-f.End
	if err := replaceTail(file, f.End, w.End(tail), info.Size()); err != nil {
		return r, err
	}
	return r, nil
}

// replaceTail writes the end of a file of size bytes at byte at. If it fails before the torn part is cut off, the file is
// as it was.
func replaceTail(file *os.File, at int64, tail []byte, size int64) error {
	end := at + int64(len(tail))
	before := make([]byte, min(int64(len(tail)), size-at))
	if _, err := file.ReadAt(before, at); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	err := unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_KEEP_SIZE, at, int64(len(tail)))
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = nil
	}
	if err == nil {
		_, err = file.WriteAt(tail, at)
	}
	if err == nil {
		err = file.Sync() // before the torn part is cut off
	}
	if err != nil {
		if len(before) > 0 {
			_, failed := file.WriteAt(before, at)
			err = errors.Join(err, failed)
		}
		return errors.Join(err, file.Truncate(size))
	}
	return errors.Join(file.Truncate(end), file.Sync())
}

// mend repairs the recording's files that an earlier process has not ended.
func (s *Sink) mend(ctx context.Context) {
	paths, err := Files(s.config.Directory, s.config.Name)
	if err != nil {
		return // a recording that cannot be made says so
	}
	s.mendFiles(ctx, s.mendFiles(ctx, paths, repairFile), Repair)
}

// mendFiles repairs files with a function, and returns those that are being written.
func (s *Sink) mendFiles(ctx context.Context, paths []string, repair func(context.Context, string) (Repaired, error)) (written []string) {
	for _, path := range paths {
		if ctx.Err() != nil {
			return written
		}
		if s.writing.has(path) || hasEnd(path) {
			continue
		}
		if _, tried := s.unmended.Load(path); tried {
			continue
		}
		r, err := repair(ctx, path)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, ErrWritten):
			written = append(written, path)
		case err != nil:
			s.unmended.Store(path, true)
			s.log.Warn("a recording that was not ended has no index", "error", err)
		case !r.Finished:
			s.log.Info("a recording that was not ended has its index now", "file", path, "chunks", r.Chunks, "damaged", r.Left, "cut_bytes", r.Cut)
		}
	}
	return written
}

// hasEnd reports whether a file needs no repair, or cannot be read.
func hasEnd(path string) bool {
	in, size, err := files.OpenRegular(path)
	if err != nil {
		return true
	}
	defer func() { _ = in.Close() }() // the file was only read
	has, err := mcap.HasEnd(in, size)
	return has || err != nil
}
