// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/files"
	"github.com/tegracast/tegracast/pipeline/record/mcap"
)

// An Entry is a recording in a list of recordings.
type Entry struct {
	Path       string    `json:"file"`               // its path
	Output     string    `json:"output"`             // name of the output that wrote it, from the file's name
	State      FileState `json:"state,omitempty"`    // `finished`, `being written` or `not finished`
	Bytes      int64     `json:"bytes"`              // its size
	Frames     int       `json:"frames"`             // in the file, of the channel that is played
	First      time.Time `json:"first"`              // time of the first frame
	Last       time.Time `json:"last"`               // time of the last frame
	FirstFrame uint64    `json:"first_frame"`        // number of the first frame; 0 without frames
	LastFrame  uint64    `json:"last_frame"`         // number of the last frame
	Width      int       `json:"width"`              // of the pictures, in pixels
	Height     int       `json:"height"`             // of the pictures, in pixels
	Encoding   string    `json:"encoding,omitempty"` // `h264`, `jpeg`, or the pixel format of the pictures, as ROS calls it, or V4L2
	Error      string    `json:"error,omitempty"`    // why the file cannot be read, or not as a whole

	Foreign bool `json:"-"` // it is an MP4 file without fragments, as record export makes it
}

// A FileState is the state of a file.
type FileState string

// States of a file.
const (
	Finished     FileState = "finished"
	BeingWritten FileState = "being written" // by a recording of this machine
	NotFinished  FileState = "not finished"  // its writer did not end it
)

// List describes a recording. Of a finished one it reads only the index and the headers of the first frame and the last
// one. The returned error is that of ctx.
func List(ctx context.Context, path string) (Entry, error) {
	e := Entry{Path: path, Output: outputOf(path)}
	if err := e.read(ctx); err != nil {
		e.Error = err.Error()
	}
	return e, ctx.Err()
}

// own matches the names of this project's recordings and of the files of rings. The first group is the output's name.
var own = regexp.MustCompile(`^(.+)-(?:[0-9]{8}T[0-9]{9}Z|ring)\.(?:mcap|mp4)$`)

// outputOf returns the name of the output that wrote a file, or the file's name without its extension if it is named
// differently.
func outputOf(path string) string {
	name := filepath.Base(path)
	if m := own.FindStringSubmatch(name); m != nil {
		return m[1]
	}
	return name[:len(name)-len(filepath.Ext(name))]
}

func (e *Entry) read(ctx context.Context) error {
	in, size, err := files.OpenRegular(e.Path)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // the file was only read
	e.Bytes = size
	if filepath.Ext(e.Path) == VideoExtension {
		return e.readVideo(in, size)
	}
	has, err := mcap.HasEnd(in, size)
	if err != nil {
		return err
	}
	written := !has && locked(in) // asked first, because the file may be finished meanwhile
	if written {
		e.State = BeingWritten
	}
	f, err := mcap.Open(ctx, in, size)
	if err != nil {
		if written && errors.Is(err, mcap.ErrNotMCAP) { // its head is not written yet
			return nil
		}
		return fmt.Errorf("%s: %w", e.Path, err)
	}
	switch {
	case f.Finished:
		e.State = Finished
	case !written:
		e.State = NotFinished
	}
	damaged := e.frames(ctx, f)
	if _, inside := tornGaps(f, size); f.Trouble != nil && (has || inside != nil) { // otherwise Repair ends it
		damaged = f.Trouble
	}
	if damaged == nil || written {
		return nil
	}
	return fmt.Errorf("%s: %w", e.Path, damaged)
}

// locked reports whether a recording is writing the file: it locks its files.
func locked(f *os.File) bool {
	err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if err == nil {
		_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
	}
	return errors.Is(err, unix.EWOULDBLOCK)
}

// frames counts the frames. If the index has their number, it reads only the first one and the last one. It returns the
// first error, and skips damaged chunks.
func (e *Entry) frames(ctx context.Context, f *mcap.File) error {
	r, i := &inspection{Report: &Report{}}, 0
	var damaged error
	for ; i < len(f.Chunks) && ctx.Err() == nil && (r.Image == nil || f.Counts == nil); i++ {
		damaged = cmp.Or(damaged, r.chunk(f, i, false))
	}
	if r.Image == nil {
		return damaged
	}
	if f.Counts != nil {
		for end, before := len(f.Chunks), r.Frames; end > i && r.Frames == before && ctx.Err() == nil; end-- {
			damaged = cmp.Or(damaged, r.chunk(f, end-1, false))
		}
		r.Frames = int(f.Counts[r.Channel])
	}
	e.Frames, e.First, e.Last, e.FirstFrame, e.LastFrame = r.Frames, r.First, r.Last, r.FirstFrame, r.LastFrame
	e.Width, e.Height, e.Encoding = r.Image.Width, r.Image.Height, r.Image.Encoding
	return damaged
}
