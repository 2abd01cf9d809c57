// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/tegracast/tegracast/cudahost/cufile"
	"github.com/tegracast/tegracast/pipeline"
)

// Expand finds the files of paths and patterns (path/filepath.Match): in the order of the list, those of a pattern in the order
// of their names. An error says which pattern has none.
func Expand(list []string) ([]string, error) {
	var files []string
	for _, pattern := range list {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return nil, fmt.Errorf("%q: %w: *, ? and [a-z] stand for names, a backslash before one of them for itself", pattern, err)
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("there is no file %s: correct the path", pattern)
		}
		files = append(files, found...)
	}
	return files, nil
}

// A Player goes through the frames of recordings, one file after the other. Only one file is open at a time.
type Player struct {
	Format  pipeline.Format // of all frames
	Trouble []error         // what is wrong with the files as a whole; their frames up to there are played
	Frames  int             // from the beginning to the end, if none is damaged

	driver   *cufile.Driver
	files    []string
	from, to Position
	first    time.Time // of the first frame
	begin    place
	next     place
	reader   *Reader // of next.file; nil: it is not open
}

// place is a frame of a file.
type place struct{ file, chunk int }

// NewPlayer checks the files, which must have frames of one format, and finds the frames from (included) and to (not included).
// driver reads pixels; with nil they are not read. Errors wrap ErrNoFrames, ErrFormat or the file's.
func NewPlayer(files []string, from, to Position, driver *cufile.Driver) (*Player, error) {
	p := &Player{driver: driver, files: files, from: from, to: to, begin: place{file: -1}}
	for i := range files {
		if err := p.look(i); err != nil {
			return nil, err
		}
	}
	if p.begin.file < 0 || p.Frames == 0 {
		return nil, fmt.Errorf("%s: %w: none lies from %q to %q", files[0], ErrNoFrames, from, to)
	}
	p.next = p.begin
	return p, nil
}

// look checks file i, and whether the beginning is in it.
func (p *Player) look(i int) error {
	r, err := OpenReader(p.files[i], nil)
	if err != nil {
		return err
	}
	if r.Trouble != nil {
		p.Trouble = append(p.Trouble, fmt.Errorf("%s: %w", r.Path, r.Trouble))
	}
	if i == 0 {
		p.Format, p.first = r.Format, time.Unix(0, int64(r.Chunks[r.first].First))
	}
	if r.Format != p.Format {
		err = fmt.Errorf("%s: %w: %s, those of %s are %s: play them one after the other", r.Path, ErrFormat, r.Format, p.files[0], p.Format)
	}
	begin := 0
	if p.begin.file < 0 {
		begin = p.seek(r, p.from, 0)
		if begin < len(r.Chunks) {
			p.begin = place{i, begin}
		}
	}
	end := len(r.Chunks)
	if p.to.given {
		end = p.seek(r, p.to, begin)
	}
	p.Frames += max(0, end-begin)
	return errors.Join(err, r.Close())
}

// seek is the first frame of a file, from frame at on, that has reached a place.
func (p *Player) seek(r *Reader, to Position, at int) int {
	switch {
	case !to.given:
		return at
	case to.time < 0:
		return max(at, r.find(to.frame))
	}
	for ; at < len(r.Chunks); at++ {
		if time.Unix(0, int64(r.Chunks[at].First)).Sub(p.first) >= to.time {
			break
		}
	}
	return at
}

// Next finds the next frame; at the end it returns ErrEnd. Another error is of a frame that cannot be had: the one behind it
// comes next. The frame is good until the next call.
func (p *Player) Next() (*Frame, error) {
	for p.next.file < len(p.files) {
		if p.reader == nil {
			r, err := OpenReader(p.files[p.next.file], p.driver)
			if err != nil {
				p.next = place{file: p.next.file + 1}
				return nil, err
			}
			p.reader = r
		}
		if p.next.chunk >= len(p.reader.Chunks) {
			if err := p.turn(p.next.file + 1); err != nil {
				return nil, err
			}
			continue
		}
		f, err := p.reader.Frame(p.next.chunk)
		p.next.chunk++
		if errors.Is(err, errNoImage) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.reader.Path, err)
		}
		if p.to.given && p.to.reached(f.Note.Frame, f.At.Sub(p.first)) {
			return nil, errors.Join(ErrEnd, p.turn(len(p.files)))
		}
		return f, nil
	}
	return nil, ErrEnd
}

// turn closes the file that is open, and goes to the beginning of another one.
func (p *Player) turn(file int) error {
	p.next = place{file: file}
	r := p.reader
	if p.reader = nil; r == nil {
		return nil
	}
	return r.Close()
}

// Rewind goes back to the beginning.
func (p *Player) Rewind() error {
	err := p.turn(0)
	p.next = p.begin
	return err
}

// Close closes the file that is open.
func (p *Player) Close() error { return p.turn(len(p.files)) }
