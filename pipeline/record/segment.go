// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cudahost/cufile"
	"github.com/tegracast/tegracast/pipeline/record/mcap"
)

// Extension is that of recordings.
const Extension = ".mcap"

// ahead is how many bytes of the disk are allocated at a time, so that the file system does not do so for each frame.
const ahead = 256 << 20

// A segment is one file of a recording.
type segment struct {
	path      string
	plain     *os.File
	file      *cufile.File
	writer    *mcap.Writer
	begun     time.Time
	written   int64 // bytes that are whole
	allocated int64
}

// Channels of a recording.
const (
	imageChannel = 1
	noteChannel  = 2
)

// newSegment creates the file that begins at a time. Where there is a file of that millisecond it is called after the next one.
func (s *Sink) newSegment(now time.Time) (*segment, error) {
	g := &segment{begun: now}
	for {
		stamp := strings.Replace(now.UTC().Format("20060102T150405.000"), ".", "", 1) + "Z"
		g.path = filepath.Join(s.config.Directory, s.config.Name+"-"+stamp+Extension)
		var err error
		if g.plain, err = os.OpenFile(g.path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o640); err == nil {
			break
		} else if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		now = now.Add(time.Millisecond)
	}
	if err := s.begin(g); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", g.path, err), g.close(), os.Remove(g.path))
	}
	s.log.Info("recording begins", "file", g.path)
	return g, nil
}

// begin writes the head of the file: schemas, channels, settings and the configuration.
func (s *Sink) begin(g *segment) (err error) {
	if g.file, err = s.config.Driver.RegisterFile(g.plain); err != nil {
		return err
	}
	f := s.format
	schemas := []mcap.Schema{
		{ID: 1, Name: "sensor_msgs/msg/Image", Encoding: "ros2msg", Data: []byte(imageSchema)},
		{ID: 2, Name: "tegracast/Frame", Encoding: "jsonschema", Data: []byte(noteSchema)},
	}
	about := map[string]string{"pixels": f.Pixel.String(), "rate": f.Rate.String(), "color": f.Color.String()}
	if samples, ok := f.Pixel.Samples(); ok {
		about["bits"] = fmt.Sprint(samples.Bits)
	}
	topic := "/" + s.config.Source
	w, b, err := mcap.NewWriter("ros2", s.config.Library, page, schemas, []mcap.Channel{
		{ID: imageChannel, Schema: 1, Topic: topic + "/image", Encoding: "cdr", Metadata: about},
		{ID: noteChannel, Schema: 2, Topic: topic + "/frame", Encoding: "json"},
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
	if _, err := g.plain.WriteAt(b, 0); err != nil {
		return err
	}
	g.written = int64(len(b))
	return nil
}

// reserve makes sure that size bytes more have their place on the disk. A file system without fallocate finds it later.
func (g *segment) reserve(size int64) error {
	for end := int64(g.writer.Offset) + size; end > g.allocated; g.allocated += ahead {
		err := unix.Fallocate(int(g.plain.Fd()), unix.FALLOC_FL_KEEP_SIZE, g.allocated, ahead)
		if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return &os.PathError{Op: "fallocate", Path: g.path, Err: err}
		}
	}
	return nil
}

// end writes the index, and closes the file. Nothing is being written to it.
func (g *segment) end() error {
	b := g.writer.End(nil)
	_, err := g.plain.WriteAt(b, g.written)
	if err == nil {
		err = g.plain.Truncate(g.written + int64(len(b))) // gives back what was allocated ahead
	}
	if err == nil {
		err = g.file.Sync()
	}
	return errors.Join(err, g.close())
}

// cut closes a file that could not be written to its end, after its last whole chunk.
func (g *segment) cut() error {
	return errors.Join(g.plain.Truncate(g.written), g.close())
}

func (g *segment) close() error {
	var errs []error
	if g.file != nil {
		errs = append(errs, g.file.Deregister())
	}
	return errors.Join(append(errs, g.plain.Close())...)
}
