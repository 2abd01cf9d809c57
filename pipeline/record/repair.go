// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/files"
	"github.com/tegracast/tegracast/pipeline/record/mcap"
	"github.com/tegracast/tegracast/pipeline/record/mp4"
)

// ErrWritten means that a file is being written, by this process or another one.
var ErrWritten = errors.New("the file is being written")

// A Repaired describes what Repair did with a file.
type Repaired struct {
	Finished bool  // the file was finished already, and is unchanged
	Chunks   int   // chunks in the index that was written, or fragments of an MP4 file
	Left     int   // damaged chunks that are not in the index
	Cut      int64 // bytes of an incomplete record at the end that were cut off
	Skipped  int64 // bytes of incomplete records among the last chunks, which readers skip now
}

// errInside means that a repair could lose what can still be read.
var errInside = errors.New("it is damaged before its end, so it stays as it is: tegracast record export copies what can be read")

// errNothing means that a repair would leave a file without a frame.
var errNothing = errors.New("it has no whole frame, so there is nothing to repair")

// maxCut is the maximum number of bytes that a repair cuts off. An incomplete chunk has fewer.
const maxCut = 1 << 30

// letGo is the maximum time for which Repair waits for the kernel to close the files of a killed process, which it does
// when their writes have ended.
const letGo = time.Second

// torn is the number of chunks at the end of a file whose checksums are verified: those that a power cut may have torn.
const torn = 128

// Repair completes a recording, MCAP or MP4, that was not completed, because of a power cut for example: behind the last complete
// record it writes the index, in place of any incomplete one. Complete records remain as they are; an incomplete one
// among the last chunks becomes padding, which readers skip. If the index cannot be written, for example because the disk
// is full, Repair restores the end of the file. It does not change a file that has other damage before its end, or no whole
// frame. Errors wrap ErrWritten, mcap.ErrNotMCAP, mcap.ErrDamaged or mcap.ErrNotOwn, or are those of ctx or the file.
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
	r := Repaired{}
	info, err := file.Stat()
	switch {
	case err != nil:
	case info.Size() == 0:
		err = errNothing
	case filepath.Ext(path) == VideoExtension:
		r, err = repairVideo(ctx, file, info.Size())
	default:
		r, err = repair(ctx, file, info.Size())
	}
	if err = errors.Join(err, file.Close()); err != nil {
		err = fmt.Errorf("%s: %w", path, err)
	}
	return r, err
}

// openUnused opens a file that nobody else writes, and locks it if the file system has locks. The error wraps
// ErrWritten if someone does. Recordings lock their files; for other writers openUnused asks for a lease, which the
// kernel grants on a local disk if no one has the file open for writing (fcntl(2)).
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

func repair(ctx context.Context, file *os.File, size int64) (r Repaired, err error) {
	f, err := mcap.Open(ctx, file, size)
	if err != nil || f.Finished {
		r.Finished = err == nil
		return r, err
	}
	gaps, err := tornGaps(f, size)
	if err == nil && size-f.End > maxCut {
		err = errInside
	}
	if err != nil {
		return r, fmt.Errorf("%w: %w", mcap.ErrDamaged, err)
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
	r.Chunks, r.Left, r.Cut = w.Chunks(), left, size-f.End
	for _, g := range gaps { // first, because a file that has an end is not repaired again
		r.Skipped += g.To - g.From
		if _, err := file.WriteAt(mcap.PaddingHead(g.To-g.From), g.From); err != nil {
			return r, err
		}
	}
	if len(gaps) > 0 {
		if err := file.Sync(); err != nil {
			return r, err
		}
	}
	return r, replaceTail(file, f.End, w.End(tail), size)
}

// tornGaps returns the damaged places between chunks that a killed process leaves: it writes up to Holds frames at a time,
// and later ones may be complete before earlier ones. The error is errInside if there is other damage.
func tornGaps(f *mcap.File, size int64) (gaps []mcap.Gap, err error) {
	longest := int64(0)
	for _, c := range f.Chunks {
		longest = max(longest, c.Length)
	}
	for _, g := range f.Gaps() {
		frames := 0
		for _, c := range f.Chunks[g.Before:] {
			if c.Length > page { // otherwise it has settings or a trigger
				frames++
			}
		}
		switch {
		case g.Before == 0 || frames >= Holds: // the definitions before the first chunk are durable early
			return nil, errInside
		case g.To == 0 && size-g.From > Holds*(longest+page):
			return nil, errInside
		case g.To == 0: // it is cut off
		case g.To-g.From < mcap.LeastPadding:
			return nil, errInside
		default:
			gaps = append(gaps, g)
		}
	}
	return gaps, nil
}

// replaceTail replaces everything from byte at on, in a file of size bytes, by tail. If it fails before it cuts off the
// rest, it restores the file.
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

// repairVideo is repair for MP4. What is behind the last whole fragment is cut off, if that is a part of one fragment.
func repairVideo(ctx context.Context, file *os.File, size int64) (r Repaired, err error) {
	f, err := mp4.Read(file, size)
	if err != nil || f.Finished {
		r.Finished = err == nil
		return r, err
	}
	if f.Len() > 0 {
		if _, err := noteOf(f, 0); err != nil {
			return r, err
		}
	}
	inside, err := damagedInside(ctx, f, size)
	if err == nil && inside {
		err = errInside
	}
	if err == nil && f.Len() == 0 {
		err = errNothing
	}
	if err != nil {
		return r, fmt.Errorf("mp4: %w", err)
	}
	var tail bytes.Buffer
	if err := f.Finish(&tail); err != nil {
		return r, err
	}
	r.Chunks, r.Cut = f.Fragments(), size-f.Whole
	return r, replaceTail(file, f.Whole, tail.Bytes(), size)
}

// damagedInside reports whether a file of size bytes has other damage than a torn fragment at its end.
func damagedInside(ctx context.Context, f *mp4.File, size int64) (bool, error) {
	if size-f.Whole > maxCut {
		return true, nil
	}
	return f.DamagedInside(ctx)
}

// mend repairs the recording's files that an earlier process has not completed.
func (d *folder) mend(ctx context.Context) {
	paths, err := filesOf(d.directory, d.name, d.extension)
	if err != nil {
		return // a recording that cannot be made says so
	}
	d.mendFiles(ctx, d.mendFiles(ctx, paths, repairFile), Repair)
}

// mendFiles repairs those of the files that have no end, by calling repair, and returns those for which repair returns
// ErrWritten. It deletes those that were begun just before the power was cut, and have no whole frame.
func (d *folder) mendFiles(ctx context.Context, paths []string, repair func(context.Context, string) (Repaired, error)) (written []string) {
	for _, path := range paths {
		if ctx.Err() != nil {
			return written
		}
		if d.writing.has(path) || hasEnd(path) {
			continue
		}
		if _, tried := d.unmended.Load(path); tried {
			continue
		}
		r, err := repair(ctx, path)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, ErrWritten):
			written = append(written, path)
		case errors.Is(err, errNothing):
			d.unmended.Store(path, true)
			f, err := d.find(filepath.Base(path))
			if err == nil {
				err = d.delete(f, "it has no whole frame")
			}
			if err != nil {
				d.log.Warn("a recording without a whole frame stays", "file", path, "error", err)
			}
		case err != nil:
			d.unmended.Store(path, true)
			d.log.Warn("a recording that was not ended has no index", "error", err)
		case !r.Finished:
			d.log.Info("a recording that was not ended has its index now", "file", path, "chunks", r.Chunks, "damaged", r.Left, "torn_bytes", r.Cut+r.Skipped)
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
	if filepath.Ext(path) == VideoExtension {
		has, err := mp4.HasEnd(in, size)
		return has || err != nil
	}
	has, err := mcap.HasEnd(in, size)
	return has || err != nil
}
