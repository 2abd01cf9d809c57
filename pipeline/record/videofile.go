// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/files"
	"github.com/tegracast/tegracast/pipeline/record/mp4"
)

// A videoFile is a file of encoded pictures that is being written.
type videoFile struct {
	openFile
	video    *Video
	plain    *os.File
	writer   videoWriter
	end      int64     // length of the file
	head     int64     // its length before the first fragment
	first    time.Time // capture time of the first picture
	sps, pps []byte
	pending  []mp4.Sample // pictures of the next fragment
	waiting  int64        // their bytes, with those of their notes
	begins   uint64       // number of the first one's frame
	pictures int          // in the file and in pending
	newest   time.Time    // capture time of the newest picture
	back     bool         // the clock was set back since the first one
	listed   bool         // the folder's entry was made durable
	cached   bool         // the file system has no direct writes
}

// newFile creates a file that begins with picture p, and is named after the time now.
func (v *Video) newFile(p *videoPicture, now time.Time) (*videoFile, error) {
	track := mp4.Track{Codec: v.config.Codec, Width: v.config.Width, Height: v.config.Height}
	if track.Codec == mp4.H264 {
		if track.SPS, track.PPS = mp4.ParameterSets(p.data); track.SPS == nil {
			return nil, errors.New("a key frame has no parameter sets")
		}
	}
	g := &videoFile{video: v, first: p.at, newest: p.at, sps: bytes.Clone(track.SPS), pps: bytes.Clone(track.PPS)}
	v.waits.begin(laying)
	defer v.waits.end(laying)
	if err := v.prune(now); err != nil {
		return nil, err
	}
	path, err := v.names(now, func(path string) (err error) {
		if g.plain, err = create(path); err == nil {
			v.writing.add(&g.openFile, path)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if v.config.MCAP {
		g.writer, err = newMCAPVideo(g, &v.config)
	} else {
		g.writer, err = mp4.NewWriter(g, track, p.at)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), v.closeFile(g))
	}
	g.head = g.end
	v.files.Add(1)
	v.log.Info("recording begins", "file", path)
	return g, nil
}

// fits reports whether picture p can be in the same file as the pictures before it: whether its parameter sets are the
// file's.
func (g *videoFile) fits(p *videoPicture) bool {
	if !p.key || g.sps == nil {
		return true
	}
	sps, pps := mp4.ParameterSets(p.data)
	return sps == nil || bytes.Equal(sps, g.sps) && bytes.Equal(pps, g.pps)
}

// isBefore reports whether the clock was set back before picture p.
func (g *videoFile) isBefore(p *videoPicture) bool {
	return p.at.Before(g.newest.Add(-time.Duration(slack)))
}

// gone reports whether the file was deleted by someone else.
func (g *videoFile) gone() bool {
	var st unix.Stat_t
	return unix.Fstat(int(g.plain.Fd()), &st) == nil && st.Nlink == 0
}

// add appends a picture to the file. Before a key frame of H.264, and when the fragment is long or large enough, the
// fragment is written.
func (v *Video) add(g *videoFile, p *videoPicture) error {
	note, err := json.Marshal(&p.note)
	if err != nil {
		return fmt.Errorf("frame %d: %w", p.note.Frame, err)
	}
	starts, size := p.key && v.config.Codec == mp4.H264, int64(len(p.data)+len(note))
	if len(g.pending) > 0 && (starts || p.at.Sub(g.pending[0].At) >= v.config.Sync || p.at.Before(g.newest) || g.waiting+size > maxFragment) {
		if err := v.fragment(g, p.at); err != nil {
			return err
		}
	}
	if len(g.pending) == 0 {
		g.begins = p.note.Frame
	}
	g.back = g.back || g.isBefore(p)
	g.waiting += size
	g.pictures++
	g.pending = append(g.pending, mp4.Sample{Data: p.data, Key: p.key, At: p.at, Note: note})
	g.newest = p.at
	return nil
}

// fragment writes the pending pictures, and makes them durable. end is the time of the picture after them.
func (v *Video) fragment(g *videoFile, end time.Time) error {
	if len(g.pending) == 0 {
		return nil
	}
	if err := g.writer.Fragment(g.pending, end); err != nil {
		return fmt.Errorf("recording %s: %w", g.path(), err)
	}
	for i := range g.pending {
		b := g.pending[i].Data
		v.bytes.Add(uint64(len(b)))
		if v.config.Window == nil { // otherwise the picture may be kept
			v.pool(g.pending[i].Key).Put(&b)
		}
	}
	v.frames.Add(uint64(len(g.pending)))
	v.fault.Store(nil)
	clear(g.pending)
	g.pending, g.waiting = g.pending[:0], 0
	v.waits.begin(syncing)
	defer v.waits.end(syncing)
	return v.sync(g)
}

// sync makes what was written durable, and the file's name.
func (v *Video) sync(g *videoFile) error {
	if err := unix.Fdatasync(int(g.plain.Fd())); err != nil {
		return &os.PathError{Op: "fdatasync", Path: g.path(), Err: err}
	}
	if g.listed {
		return nil
	}
	g.listed = true
	if err := files.SyncFolder(v.directory); err != nil {
		return fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	return nil
}

// Write appends to the file. If that fails, the file ends as before.
func (g *videoFile) Write(b []byte) (int, error) {
	v := g.video
	v.waits.begin(writing)
	defer func() { v.waited.Add(int64(v.waits.end(writing))) }()
	err := v.makeRoom(func() error {
		err := g.append(b)
		if err != nil {
			err = errors.Join(err, g.plain.Truncate(g.end))
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	g.end += int64(len(b))
	g.size.Store(g.end)
	return len(b), nil
}

// minDirect is the minimum number of bytes for which a direct write costs less than one to the page cache.
const minDirect = 64 << 10

// append writes to the end of the file. The whole pages of a long write go to the disk directly (O_DIRECT, open(2)),
// which takes a fraction of the CPU time, if they lie in memory as in the file.
func (g *videoFile) append(b []byte) error {
	head := int(-g.end & (page - 1))
	whole := (len(b) - head) &^ (page - 1)
	if g.cached || whole < minDirect || address(b[head:])%page != 0 {
		_, err := g.plain.WriteAt(b, g.end)
		return err
	}
	_, err := g.plain.WriteAt(b[:head], g.end)
	if err == nil {
		err = g.direct(b[head:head+whole], g.end+int64(head))
	}
	if err == nil {
		_, err = g.plain.WriteAt(b[head+whole:], g.end+int64(head+whole))
	}
	return err
}

// direct writes whole pages of memory to whole pages of the file directly, or through the page cache if the file system
// refuses that.
func (g *videoFile) direct(b []byte, at int64) error {
	set := func(flags int) error {
		_, err := unix.FcntlInt(g.plain.Fd(), unix.F_SETFL, flags)
		return err
	}
	err := set(unix.O_DIRECT)
	if err == nil {
		_, err = g.plain.WriteAt(b, at)
		err = errors.Join(err, set(0))
	}
	if g.cached = errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP); g.cached {
		_, err = g.plain.WriteAt(b, at)
	}
	return err
}

// endFile writes the index behind the last fragment, and closes the file.
func (v *Video) endFile(g *videoFile) error {
	err := g.writer.Close()
	v.waits.begin(ending)
	defer v.waits.end(ending)
	if err == nil {
		err = v.sync(g)
	}
	if err = errors.Join(err, v.closeFile(g)); err != nil {
		return err
	}
	v.reportNews(News{File: g.path()})
	return nil
}

// closeFile closes a file, and deletes it if it has no pictures.
func (v *Video) closeFile(g *videoFile) error {
	v.missed.Add(uint64(len(g.pending)))
	g.pending = nil
	g.closed.Store(true)
	err := g.plain.Close()
	if g.end > g.head && g.head > 0 {
		return err
	}
	if gone := os.Remove(g.path()); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
		return errors.Join(err, gone)
	}
	v.unlist(g.path())
	return err
}

// lastDuration returns an estimate of the duration of the newest picture.
func lastDuration(g *videoFile) time.Duration {
	if n := len(g.pending); n > 1 {
		return max(g.pending[n-1].At.Sub(g.pending[n-2].At), 0)
	}
	return time.Second / 30
}
