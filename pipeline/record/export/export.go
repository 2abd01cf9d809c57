// SPDX-License-Identifier: Apache-2.0

// Package export writes frames of recordings in other formats: Y4M, PNG, DNG, MP4, and Matroska with ffmpeg; and as
// slices, which are recordings themselves.
package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cudahost/cufile"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record"
)

// Errors of an export. They are returned wrapped, with details and a remedy.
var (
	ErrUnknown = errors.New("unknown format")
	ErrPixels  = errors.New("this format cannot have these pixels")
	ErrExists  = errors.New("the file exists already")
)

// Config configures an export.
type Config struct {
	Files    []string // recordings, in the order of their frames
	From, To record.Position
	Format   string // one of Formats
	Out      string // a file, which must not exist, or, for png and dng, a folder, which is created if needed
	Driver   *cufile.Driver
	Video    func(f pipeline.Format) (Video, error) // opens an encoder for frames of format f, which has a rate; for mp4
}

// Formats is a text that lists the names of the formats.
const Formats = "mcap, y4m, png, dng, mp4 or mkv"

// A writer writes frames of one format.
type writer interface {
	// addFrame writes a frame, whose pixels are valid until it returns.
	addFrame(f *record.Frame, pixels []byte) error
	// finish completes and closes the output. It must be called even if addFrame has failed.
	finish() error
}

// A maker returns a writer that writes to out. The error wraps ErrPixels if the format does not support the pixels.
type maker func(ctx context.Context, f pipeline.Format, out string) (writer, error)

// A Result is the result of an export.
type Result struct {
	Frames  int
	Lost    int     // frames omitted because they cannot be read
	Damaged []error // errors of files as a whole, and of omitted frames until the list has maxDamaged errors
}

// maxDamaged is the number of errors at which a Result stops listing omitted frames.
const maxDamaged = 100

// Run exports frames. progress is called with the completed fraction, from 0 to 1. If Run fails, it removes the file
// that it could not complete, but not the folder of png or dng. Errors wrap ErrUnknown, ErrPixels, ErrExists, ErrFFmpeg
// or errors of packages record and mcap, or come from ctx, a file or the Video.
func Run(ctx context.Context, c Config, progress func(part float64)) (Result, error) {
	var res Result
	makers := map[string]maker{"mcap": newMCAP, "y4m": newY4M, "png": newPNG, "dng": newDNG, "mp4": newMP4(c.Video), "mkv": newMKV}
	newWriter := makers[c.Format]
	if newWriter == nil {
		return res, fmt.Errorf("%w %q: use %s", ErrUnknown, c.Format, Formats)
	}
	if slices.ContainsFunc(c.Files, func(path string) bool { return filepath.Ext(path) == record.VideoExtension }) {
		return exportClip(ctx, c, progress)
	}
	p, err := record.NewPlayer(ctx, c.Files, c.From, c.To, c.Driver)
	if err != nil {
		return res, err
	}
	res.Damaged = p.Trouble
	w, err := newWriter(ctx, p.Format, c.Out)
	if err != nil {
		return res, errors.Join(err, p.Close())
	}
	err = res.copy(ctx, p, w, progress)
	if err = errors.Join(err, w.finish(), p.Close()); err != nil {
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

// copy passes the frames to the writer, and counts the unreadable ones.
func (r *Result) copy(ctx context.Context, p *record.Player, w writer, progress func(part float64)) error {
	pixels, err := unix.Mmap(-1, 0, p.Format.Size(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	defer func() { _ = unix.Munmap(pixels) }()
	for {
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
		if err := w.addFrame(f, pixels); err != nil {
			return err
		}
		r.Frames++
		progress(p.Part())
	}
}

// create creates a file that must not exist.
func create(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("%s: %w: remove it, or name another one", path, ErrExists)
	}
	return f, err
}

// cannot returns an error for unsupported pixels.
func cannot(f pipeline.Format, format, has, instead string) error {
	return fmt.Errorf("%w: %s has %s, the frames are %s: %s", ErrPixels, format, has, f.Pixel, instead)
}

// sensorInstead is the text of the remedy if a sensor's samples are given where a picture is needed.
const sensorInstead = "export mp4, dng or png"

// mcapWriter writes a recording.
type mcapWriter struct {
	file  *os.File
	slice *record.Slice // nil before the first frame
}

func newMCAP(_ context.Context, _ pipeline.Format, out string) (writer, error) {
	file, err := create(out)
	return &mcapWriter{file: file}, err
}

func (w *mcapWriter) addFrame(f *record.Frame, pixels []byte) (err error) {
	if w.slice == nil {
		if w.slice, err = record.NewSlice(w.file, f); err != nil {
			return err
		}
	}
	return w.slice.Add(f, pixels)
}

func (w *mcapWriter) finish() error {
	var err error
	if w.slice != nil {
		err = w.slice.End()
	}
	return errors.Join(err, w.file.Close())
}

// A still writes a frame as a file. shot returns the settings with which it was taken, for which a recording is searched.
type still func(out io.Writer, f *record.Frame, shot func() record.Settings, pixels []byte) error

// WriteStill writes a frame, which was taken with the settings s, as a file. format must be png or dng; camera is the
// camera's name in the file. The error wraps ErrPixels if the format does not support the pixels, or comes
// from out.
func WriteStill(out io.Writer, format string, f *pipeline.Frame, camera string, s record.Settings) error {
	write, err := map[string]func(pipeline.Format) (still, error){"png": pngs, "dng": dng}[format](f.Format)
	if err != nil {
		return err
	}
	frame := &record.Frame{Note: record.NoteOf(f), Image: record.Image{FrameID: camera}, At: f.Times.Shown()}
	return write(out, frame, func() record.Settings { return s }, f.Bytes)
}

// A folder is a writer that writes one file for each frame.
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

// addFrame writes a frame's file, whose name contains the frame's number.
func (d *folder) addFrame(f *record.Frame, pixels []byte) error {
	path := filepath.Join(d.path, fmt.Sprintf("frame-%08d%s", f.Note.Frame, d.suffix))
	out, err := create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(d.write(out, f, f.Settings, pixels), out.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

func (d *folder) finish() error { return nil }

// FormatOf returns the format that a path's extension names: the extension without the dot, or "" if there is none. The
// result need not be one of Formats.
func FormatOf(out string) string { return strings.TrimPrefix(filepath.Ext(out), ".") }
