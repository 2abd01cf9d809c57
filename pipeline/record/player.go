// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/tegracast/tegracast/cudahost/cufile"
	"github.com/tegracast/tegracast/pipeline"
)

// Expand returns the files that match paths and patterns (path/filepath.Match), in the order of the list, and by name
// for each pattern. It returns an error for an invalid pattern, and for one without a match.
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

// A Player plays the frames of recordings, one file after another. Only one file is open at a time.
type Player struct {
	Format  pipeline.Format // of all frames
	Trouble []error         // errors about files as a whole, whose frames are played as far as they can be read

	driver   *cufile.Driver
	files    []string
	from, to Position  // resolved with the first file's first undamaged frame
	first    time.Time // time of that frame
	begin    place
	next     place
	reached  bool    // a frame at or after from was found
	chunks   int     // number of chunks in the range
	passed   int     // number of those that were played
	last     uint64  // number of the previous frame; valid if any is true
	any      bool    // a frame was played
	reader   *Reader // reads file next.file; nil if that file is not open
}

// place is the position of a frame: file, chunk, and frame of the chunk.
type place struct{ file, chunk, frame int }

// NewPlayer checks the files, at least one, whose frames must all have the same format, and finds the range of frames,
// which begins at from and ends before to. driver reads pixels; if it is nil they cannot be read. Errors wrap
// ErrNoFrames, ErrRange or ErrFormat, or are those of OpenReader.
func NewPlayer(ctx context.Context, files []string, from, to Position, driver *cufile.Driver) (*Player, error) {
	p := &Player{driver: driver, files: files, from: from, to: to, begin: place{file: -1}}
	for i := range files {
		if err := p.checkFile(ctx, i); err != nil {
			return nil, err
		}
	}
	none := p.begin.file < 0
	if !none {
		p.next, p.driver = p.begin, nil
		_, err := p.Next() // a damaged one is one too
		none = errors.Is(err, ErrEnd)
		p.driver = driver
	}
	if err := p.Rewind(); err != nil {
		return nil, err
	}
	if none {
		return nil, rangeError(ctx, files, from, to)
	}
	return p, nil
}

// checkFile checks file i, and counts its chunks in the range. If the range begins in the file, checkFile sets begin.
func (p *Player) checkFile(ctx context.Context, i int) error {
	r, err := OpenReader(ctx, p.files[i], nil)
	if err != nil {
		return err
	}
	if r.Trouble != nil {
		p.Trouble = append(p.Trouble, fmt.Errorf("%s: %w", r.Path, r.Trouble))
	}
	if i == 0 {
		p.Format, p.first = r.Format, r.began
		number := r.number(r.first, 0)
		p.from, p.to = p.from.resolved(number, p.first), p.to.resolved(number, p.first)
	}
	if r.Format != p.Format {
		err = fmt.Errorf("%s: %w: %s, those of %s are %s: play them one after the other", r.Path, ErrFormat, r.Format, p.files[0], p.Format)
	}
	begin := 0
	if p.begin.file < 0 {
		begin = p.seek(r, p.from, 0)
		if begin < len(r.Chunks) {
			p.begin = place{file: i, chunk: begin}
		}
	}
	end := len(r.Chunks)
	if p.to.given() {
		if end = p.seek(r, p.to, begin); end < len(r.Chunks) && r.count(end) > 1 {
			end++ // its first frames may be in the range
		}
	}
	p.chunks += max(0, end-begin)
	return errors.Join(err, r.Close())
}

// seek returns the first chunk of a file, from chunk at on, with a frame that has reached a position, or the number of
// chunks in the file if there is none. It returns at if the position is not given.
func (p *Player) seek(r *Reader, to Position, at int) int {
	switch {
	case !to.given():
		return at
	case to.kind == byNumber:
		return max(at, r.find(to.n))
	}
	for ; at < len(r.Chunks); at++ {
		if int64(time.Unix(0, int64(r.Chunks[at].Last)).Sub(p.first)) >= to.ns {
			break
		}
	}
	return at
}

// Next returns the next frame, or an error that wraps ErrEnd at the end. Any other error concerns one unreadable frame
// or file, which the next call skips. The frame is valid until the next call of a method of p.
func (p *Player) Next() (*Frame, error) {
	for p.next.file < len(p.files) {
		if p.reader == nil {
			r, err := OpenReader(context.Background(), p.files[p.next.file], p.driver) // as in NewPlayer
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
		at := p.next
		f, err := p.reader.Frame(at.chunk, at.frame)
		if p.next.frame++; p.next.frame >= p.reader.count(at.chunk) {
			p.next = place{file: at.file, chunk: at.chunk + 1}
			p.passed++
		}
		if errors.Is(err, errNoImage) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.reader.Path, err)
		}
		since := f.At.Sub(p.first)
		if p.reached = p.reached || !p.from.given() || p.from.reached(f.Note.Frame, since); !p.reached {
			continue
		}
		p.number(f)
		if p.to.given() && p.to.reached(f.Note.Frame, since) {
			return nil, errors.Join(ErrEnd, p.turn(len(p.files)))
		}
		return f, nil
	}
	return nil, ErrEnd
}

// number gives a frame its number. Other writers may number messages anew in each file, or not at all, so a frame
// without a note whose number is not above the previous frame's gets the number after that.
func (p *Player) number(f *Frame) {
	if !f.noted && p.any && f.Note.Frame <= p.last {
		f.Note.Frame = p.last + 1
	}
	p.last, p.any = f.Note.Frame, true
}

// Part returns the fraction of the range that has been played, from 0 to 1.
func (p *Player) Part() float64 { return min(1, float64(p.passed)/float64(max(1, p.chunks))) }

// turn closes the open file, and moves to the beginning of another one.
func (p *Player) turn(file int) error {
	p.next = place{file: file}
	r := p.reader
	if p.reader = nil; r == nil {
		return nil
	}
	return r.Close()
}

// Rewind moves back to the beginning of the range. It returns the error of closing the open file.
func (p *Player) Rewind() error {
	err := p.turn(0)
	p.next, p.passed, p.any, p.reached = p.begin, 0, false, false
	return err
}

// Close closes the open file, if there is one.
func (p *Player) Close() error { return p.turn(len(p.files)) }
