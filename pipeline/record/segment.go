// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cudahost/cufile"
	"github.com/tegracast/tegracast/pipeline/record/mcap"
)

// Extension is the file name extension of recordings.
const Extension = ".mcap"

// ahead is the number of bytes of disk space allocated at a time, so that the file system need not allocate for each
// frame. At most 1/share of the free space is allocated in advance, so that other programs find space too.
const (
	ahead = 256 << 20
	share = 4
)

// A segment is one file of a recording.
type segment struct {
	openFile
	plain     *os.File
	file      *cufile.File
	writer    *mcap.Writer
	begun     time.Time
	written   int64 // offset up to which everything is written
	allocated int64
	head      int64          // bytes before the first frame or, in a ring's file, before the gap
	pending   sync.WaitGroup // jobs being written
	idle      atomic.Bool    // of a ring: no trigger has requested any of it yet
	listed    atomic.Bool    // the folder's entry was made durable
	gone      atomic.Bool    // it was deleted by someone else
}

// IDs of the channels of a recording.
const (
	imageChannel    = 1
	noteChannel     = 2
	triggerChannel  = 3
	settingsChannel = 4
)

// unpackedKey is the key in the metadata of the channel for packed frames under which the camera's own format is
// stored.
const unpackedKey = "unpacked"

// create creates a file, which must not exist, and locks it against Repair if the file system has locks.
func create(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o640)
	if err == nil {
		_ = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	return f, err
}

// newSegment creates a file that begins at the time now, and writes its head.
func (s *Sink) newSegment(now time.Time) (*segment, error) {
	g := &segment{begun: now}
	path, err := s.names(now, func(path string) (err error) {
		if g.plain, err = create(path); err == nil {
			s.writing.add(&g.openFile, path)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := s.writeHead(g); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), g.remove())
	}
	s.files.Add(1)
	s.log.Info("recording begins", "file", path)
	return g, nil
}

// writeHead writes the beginning of the file: schemas, channels and the configuration.
func (s *Sink) writeHead(g *segment) (err error) {
	if g.file, err = s.config.Driver.RegisterFile(g.plain); err != nil {
		return err
	}
	f := s.format
	schemas := []mcap.Schema{
		schemaOf(f.Pixel),
		{ID: 2, Name: noteName, Encoding: "jsonschema", Data: []byte(noteSchema)},
		{ID: 3, Name: triggerName, Encoding: "jsonschema", Data: []byte(triggerSchema)},
		{ID: 4, Name: settingsName, Encoding: "jsonschema", Data: []byte(settingsSchema)},
	}
	about := map[string]string{"pixels": f.Pixel.String(), "rate": f.Rate.String(), "color": f.Color.String()}
	if samples, ok := f.Pixel.Samples(); ok {
		about["bits"] = fmt.Sprint(samples.Bits)
	}
	if s.words != nil {
		about[unpackedKey] = s.words.Pixel.String()
	}
	topic := "/" + s.config.Source
	w, b, err := mcap.NewWriter("ros2", s.config.Library, page, schemas, []mcap.Channel{
		{ID: imageChannel, Schema: 1, Topic: topic + "/image", Encoding: "cdr", Metadata: about},
		{ID: noteChannel, Schema: 2, Topic: topic + "/frame", Encoding: "json"},
		{ID: triggerChannel, Schema: 3, Topic: topic + "/trigger", Encoding: "json"},
		{ID: settingsChannel, Schema: 4, Topic: topic + "/settings", Encoding: "json"},
	})
	if err != nil {
		return err
	}
	g.writer = w
	if len(s.config.Configuration) > 0 {
		at := uint64(g.begun.UnixNano())
		b = w.AppendAttachment(b, mcap.Attachment{Log: at, Created: at, Name: "tegracast.yaml", Media: "application/yaml", Data: s.config.Configuration})
	}
	b = w.Pad(b, page)
	if err := s.reserve(g, 0); err != nil {
		return err
	}
	if _, err := g.plain.WriteAt(b, 0); err != nil {
		return err
	}
	g.written, g.head = int64(len(b)), int64(len(b))
	g.size.Store(g.head)
	return nil
}

// indexEntry is the number of bytes that are reserved for a chunk's entry in the index.
const indexEntry = 256

// reserve makes sure that there is disk space for size more bytes and the index. On a file system without fallocate, a
// lack of space shows only later.
func (g *segment) reserve(size int64) error {
	end := int64(g.writer.Offset) + size + g.head + int64(g.writer.Chunks()+1)*indexEntry
	if end <= g.allocated {
		return nil
	}
	var disk unix.Statfs_t
	if err := unix.Fstatfs(int(g.plain.Fd()), &disk); err != nil {
		return os.NewSyscallError("fstatfs", err)
	}
	next := max(end, g.allocated+min(ahead, int64(disk.Bavail)*disk.Bsize/share))
	err := g.allocate(next)
	if errors.Is(err, unix.ENOSPC) {
		next = end
		err = g.allocate(next)
	}
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		return &os.PathError{Op: "fallocate", Path: g.path(), Err: err}
	}
	g.allocated = next
	return nil
}

func (g *segment) allocate(end int64) error {
	return g.fallocate(unix.FALLOC_FL_KEEP_SIZE, g.allocated, end-g.allocated)
}

// fallocate calls fallocate(2), and repeats it if it is interrupted by a signal.
func (g *segment) fallocate(mode uint32, from, length int64) error {
	for {
		if err := unix.Fallocate(int(g.plain.Fd()), mode, from, length); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// end writes the index, and closes the file. No write to it may be in progress.
func (g *segment) end() error {
	at := int64(g.writer.Offset)
	b := g.writer.End(nil)
	_, err := g.plain.WriteAt(b, at)
	if err == nil {
		err = g.plain.Truncate(at + int64(len(b))) // frees what was allocated in advance
	}
	if err == nil {
		err = g.sync()
	}
	return errors.Join(err, g.close())
}

// sync makes the written data and the file's name durable. It sets gone if the file was deleted.
func (g *segment) sync() error {
	var st unix.Stat_t
	if err := unix.Fstat(int(g.plain.Fd()), &st); err == nil && st.Nlink == 0 {
		g.gone.Store(true)
	}
	if err := g.file.Sync(); err != nil || g.listed.Swap(true) {
		return err
	}
	folder, err := os.Open(filepath.Dir(g.path()))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDirectory, err)
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// cut truncates a file that could not be completed after its last complete chunk, and closes it.
func (g *segment) cut() error {
	return errors.Join(g.plain.Truncate(g.written), g.close())
}

// remove closes and deletes a file that is not needed.
func (g *segment) remove() error { return errors.Join(g.close(), os.Remove(g.path())) }

func (g *segment) close() error {
	var errs []error
	if g.file != nil {
		errs = append(errs, g.file.Deregister())
	}
	g.closed.Store(true)
	return errors.Join(append(errs, g.plain.Close())...)
}
