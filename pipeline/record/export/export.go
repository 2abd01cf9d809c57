// SPDX-License-Identifier: Apache-2.0

// Package export writes frames of recordings in formats of others: Y4M, PNG, DNG, and Matroska by ffmpeg; and as slices, which are
// recordings again.
package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cudahost/cufile"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record"
)

// Errors of an export. They come wrapped with what, where and what to do.
var (
	ErrUnknown = errors.New("unknown format")
	ErrPixels  = errors.New("this format cannot have these pixels")
	ErrExists  = errors.New("the file is there already")
)

// Config is an export.
type Config struct {
	Files    []string // recordings, in the order of their frames
	From, To record.Position
	Format   string // one of Formats
	Out      string // a file, or for png and dng a folder, which is made
	Driver   *cufile.Driver
}

// Formats are the names of the formats.
const Formats = "mcap, y4m, png, dng or mkv"

// A writer writes frames of one format.
type writer interface {
	// add writes a frame, whose pixels are good until it returns.
	add(f *record.Frame, pixels []byte) error
	// end writes what is behind the last frame.
	end() error
}

// A maker makes a writer that writes to out. It refuses pixels that the format does not have by an error that wraps ErrPixels.
type maker func(ctx context.Context, f pipeline.Format, out string) (writer, error)

// A Result is what was exported.
type Result struct {
	Frames  int
	Lost    int     // frames that were left out, since they are damaged
	Damaged []error // what is damaged: files as a whole, and the first hundred frames
}

// maxDamaged is how many damaged frames a Result names.
const maxDamaged = 100

// Run exports frames. progress is called with how much is done, from 0 to 1. A file that could not be finished is removed. Errors
// wrap those above, record's, or a file's.
func Run(ctx context.Context, c Config, progress func(part float64)) (Result, error) {
	var res Result
	makers := map[string]maker{"mcap": newMCAP, "y4m": newY4M, "png": newPNG, "dng": newDNG, "mkv": newMKV}
	newWriter := makers[c.Format]
	if newWriter == nil {
		return res, fmt.Errorf("%w %q: use %s", ErrUnknown, c.Format, Formats)
	}
	p, err := record.NewPlayer(c.Files, c.From, c.To, c.Driver)
	if err != nil {
		return res, err
	}
	res.Damaged = p.Trouble
	w, err := newWriter(ctx, p.Format, c.Out)
	if err != nil {
		return res, errors.Join(err, p.Close())
	}
	err = res.copy(ctx, p, w, progress)
	if err = errors.Join(err, w.end(), p.Close()); err != nil {
		if info, _ := os.Stat(c.Out); info != nil && info.Mode().IsRegular() {
			err = errors.Join(err, os.Remove(c.Out))
		}
	}
	return res, err
}

func (r *Result) leaveOut(err error) {
	if r.Lost++; len(r.Damaged) < maxDamaged {
		r.Damaged = append(r.Damaged, err)
	}
}

// copy hands the frames on.
func (r *Result) copy(ctx context.Context, p *record.Player, w writer, progress func(part float64)) error {
	pixels, err := unix.Mmap(-1, 0, p.Format.Size(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	defer func() { _ = unix.Munmap(pixels) }()
	for n := 1; ; n++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		f, err := p.Next()
		if errors.Is(err, record.ErrEnd) {
			return nil
		}
		if err == nil {
			err = f.Pixels(pixels)
		}
		if err != nil {
			r.leaveOut(err)
			continue
		}
		if err := w.add(f, pixels); err != nil {
			return err
		}
		r.Frames++
		progress(float64(n) / float64(p.Frames))
	}
}

// create makes a file that must not be there.
func create(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("%s: %w: remove it, or name another one", path, ErrExists)
	}
	return f, err
}

// cannot refuses pixels.
func cannot(f pipeline.Format, format, has, instead string) error {
	return fmt.Errorf("%w: %s has %s, the frames are %s: %s", ErrPixels, format, has, f.Pixel, instead)
}

// sensorInstead is what to do with a sensor's samples where a picture is needed.
const sensorInstead = "export dng or png, or play the recording with an isp and record what that makes"

// mcapWriter writes a recording.
type mcapWriter struct {
	file  *os.File
	slice *record.Slice // nil: no frame has come
}

func newMCAP(_ context.Context, _ pipeline.Format, out string) (writer, error) {
	file, err := create(out)
	return &mcapWriter{file: file}, err
}

func (w *mcapWriter) add(f *record.Frame, pixels []byte) (err error) {
	if w.slice == nil {
		if w.slice, err = record.NewSlice(w.file, f); err != nil {
			return err
		}
	}
	return w.slice.Add(f, pixels)
}

func (w *mcapWriter) end() error {
	var err error
	if w.slice != nil {
		err = w.slice.End()
	}
	return errors.Join(err, w.file.Close())
}

// A still writes a frame as a file.
type still func(out io.Writer, f *record.Frame, pixels []byte) error

// WriteStill writes a frame that has just come as a file. format is png or dng, camera what the file calls the camera. An error wraps
// ErrPixels where the format does not have these pixels.
func WriteStill(out io.Writer, format string, f *pipeline.Frame, camera string) error {
	write, err := map[string]func(pipeline.Format) (still, error){"png": pngs, "dng": dng}[format](f.Format)
	if err != nil {
		return err
	}
	return write(out, &record.Frame{Note: record.NoteOf(f), Image: record.Image{FrameID: camera}, At: f.Times.Shown()}, f.Bytes)
}

// A folder has a file for each frame.
type folder struct {
	path, suffix string
	write        still
}

func newFolder(path, suffix string, f pipeline.Format, of func(pipeline.Format) (still, error)) (writer, error) {
	write, err := of(f)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, err
	}
	return &folder{path, suffix, write}, nil
}

// add writes a frame's file, which is called after its number.
func (d *folder) add(f *record.Frame, pixels []byte) error {
	path := filepath.Join(d.path, fmt.Sprintf("frame-%08d%s", f.Note.Frame, d.suffix))
	out, err := create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(d.write(out, f, pixels), out.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

func (d *folder) end() error { return nil }

// FormatOf is the format that a file's name says; empty: none.
func FormatOf(out string) string { return strings.TrimPrefix(filepath.Ext(out), ".") }
