// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/tegracast/tegracast/pipeline/files"
	"github.com/tegracast/tegracast/pipeline/record/mp4"
)

// errNoVideo means that a file is not of a kind of which there are clips.
var errNoVideo = errors.New("only recordings of H.264 and JPEG streams can be played: tegracast record export makes a video of others")

// A Clip is a part of the pictures of an MP4 recording, and an MP4 file of its own without fragments, which any player
// opens. It reads the pictures from the recording when they are asked for.
type Clip struct {
	*mp4.Span
	file     *mp4.File
	plain    *File
	from, to int
	first    uint64 // number of the first frame
	last     uint64 // number of the last frame
}

// A ClipPicture is a picture of a Clip.
type ClipPicture struct {
	At   time.Duration   // time in the clip
	Note json.RawMessage // a Note
}

// OpenClip returns the pictures of a recording from from up to to, which is not included. The caller must close it. If
// ctx ends before the recording is read, the error wraps ErrReading. Otherwise it wraps ErrNoFile, ErrHangs, ErrNoFrames
// or ErrRange, or is the file's.
func (r *Recordings) OpenClip(ctx context.Context, name string, from, to Position) (*Clip, error) {
	c, err := r.catalogOf(name)
	if err != nil {
		return nil, err
	}
	plain, err := c.open(name)
	if err != nil {
		return nil, err
	}
	d := c.folder.Load()
	var file *mp4.File
	if filepath.Ext(name) == VideoExtension {
		file, err = c.videos.of(ctx, d, plain)
	} else {
		err = errNoVideo
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), plain.Close())
	}
	return patiently(d, plain, func() (*Clip, error) { return newClip(plain, file, name, from, to) })
}

// OpenVideo is OpenClip for any MP4 file of this project. The error wraps ErrNoFrames or ErrRange, or is the file's.
func OpenVideo(path string, from, to Position) (*Clip, error) {
	plain, size, err := files.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	file, err := mp4.Read(plain, size)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), plain.Close())
	}
	return newClip(newFile(plain, nil), file, path, from, to)
}

// newClip returns a clip of a file that it owns. name is for errors.
func newClip(plain *File, file *mp4.File, name string, from, to Position) (*Clip, error) {
	c := &Clip{plain: plain, file: file.From(plain)}
	if err := c.find(from, to); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), plain.Close())
	}
	return c, nil
}

// find finds the pictures.
func (c *Clip) find(from, to Position) (err error) {
	n := c.file.Len()
	if n == 0 {
		return ErrNoFrames
	}
	if c.from, err = c.index(from, 0); err != nil {
		return err
	}
	if c.to, err = c.index(to, n); err != nil {
		return err
	}
	if c.from >= c.to {
		return c.rangeError(from, to)
	}
	if c.first, err = c.number(c.from); err == nil {
		c.last, err = c.number(c.to - 1)
	}
	if err != nil {
		return err
	}
	c.Span, err = c.file.Span(c.from, c.to)
	return err
}

// rangeError returns the error for a range without pictures.
func (c *Clip) rangeError(from, to Position) error {
	n := c.file.Len()
	first, err := c.number(0)
	if err != nil {
		return err
	}
	last, err := c.number(n - 1)
	if err != nil {
		return err
	}
	return noneIn(from, to, "the file has", first, last, c.file.Info(0).At, c.file.Info(n-1).At)
}

// index returns the index of the first picture that has reached a position, or none if the position is not given. The
// pictures must be in the order of their numbers.
func (c *Clip) index(p Position, none int) (int, error) {
	if !p.given() {
		return none, nil
	}
	first, err := c.number(0)
	p = p.resolved(first, c.file.Info(0).At)
	i := sort.Search(c.file.Len(), func(i int) bool {
		number := uint64(0)
		if p.kind == byNumber && err == nil {
			number, err = c.number(i)
		}
		return p.reached(number, c.file.Since(i))
	})
	return i, err
}

// number returns the number of the frame that picture i shows.
func (c *Clip) number(i int) (uint64, error) { return pictureNumber(c.file, i) }

// pictureNumber returns the number in the note of picture i.
func pictureNumber(f *mp4.File, i int) (uint64, error) {
	n, err := numbersOf(f, i)
	return n.Frame, err
}

// noteNumbers are the number of a frame, how many frames before it were not recorded, and its triggers.
type noteNumbers struct {
	Frame, Lost uint64
	Triggers    []TriggerNote
}

// numbersOf returns the numbers in the note of picture i.
func numbersOf(f *mp4.File, i int) (n noteNumbers, err error) {
	text, err := noteOf(f, i)
	if err == nil {
		if err = json.Unmarshal(text, &n); err != nil {
			err = fmt.Errorf("the note of picture %d is damaged: %w", i, err)
		}
	}
	return n, err
}

// A numbering reads the numbers of a file's pictures, one after the other.
type numbering struct {
	file  *mp4.File
	last  uint64
	known bool // last is the number of the picture before
}

// next returns the numbers of picture i. missing is an error if frames before it, which were recorded, are not in the file.
func (x *numbering) next(i int) (n noteNumbers, missing, err error) {
	n, err = numbersOf(x.file, i)
	if next := x.last + 1; err == nil && x.known && n.Frame > next+n.Lost {
		missing = fmt.Errorf("frames that were recorded between %d and %d cannot be found (%d): the file is damaged there",
			x.last, n.Frame, n.Frame-next-n.Lost)
	}
	x.last, x.known = n.Frame, err == nil
	return n, missing, err
}

// noteOf returns the note of picture i. A file whose first picture has none is another program's.
func noteOf(f *mp4.File, i int) ([]byte, error) {
	text, err := f.Note(i)
	switch {
	case err != nil || text != nil:
	case i == 0:
		err = errForeign
	default:
		err = fmt.Errorf("picture %d has no note: the file is damaged there", i)
	}
	return text, err
}

// errForeign means that an MP4 file is not a recording of this project.
var errForeign = fmt.Errorf("its pictures have no frame numbers: %w", mp4.ErrForeign)

// Name returns a name for the clip as a file: that of the recording, with the numbers of the first and the last frame.
func (c *Clip) Name() string {
	return fmt.Sprintf("%s-%d-%d%s", strings.TrimSuffix(filepath.Base(c.plain.Name()), VideoExtension), c.first, c.last, VideoExtension)
}

// Begin returns the time of the clip's first picture since the recording's first one.
func (c *Clip) Begin() time.Duration { return c.file.Since(c.from) }

// Len returns the number of pictures.
func (c *Clip) Len() int { return c.to - c.from }

// Last returns the number of the last frame.
func (c *Clip) Last() uint64 { return c.last }

// Tag identifies the clip among those of the recording, also while that grows.
func (c *Clip) Tag() string {
	return fmt.Sprintf("%d-%d-%d-%d", c.from, c.to, c.Size(), (c.file.Since(c.to) - c.Begin()).Microseconds())
}

// Pictures returns the pictures, up to the first one whose note cannot be read.
func (c *Clip) Pictures() iter.Seq2[ClipPicture, error] {
	return func(yield func(ClipPicture, error) bool) {
		for i := c.from; i < c.to; i++ {
			note, err := noteOf(c.file, i)
			if !yield(ClipPicture{c.file.Since(i) - c.Begin(), note}, err) || err != nil {
				return
			}
		}
	}
}

// Missing describes the places where pictures are missing that were recorded, because the file is damaged there.
func (c *Clip) Missing() (list []error) {
	numbers := numbering{file: c.file}
	for i := c.from; i < c.to; i++ {
		if _, missing, err := numbers.next(i); missing != nil || err != nil {
			list = append(list, fmt.Errorf("%s: %w", c.plain.Name(), cmp.Or(err, missing)))
		}
	}
	return list
}

// Close closes the recording.
func (c *Clip) Close() error { return c.plain.Close() }
