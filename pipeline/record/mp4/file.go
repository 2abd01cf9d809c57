// SPDX-License-Identifier: Apache-2.0

package mp4

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"sync"
	"time"

	amp4 "github.com/abema/go-mp4"
)

// A File is an MP4 file as far as it was whole when it was read. Its methods may be called at the same time.
type File struct {
	Track    Track
	Begun    time.Time // decode time 0: the capture time of the first picture of a Writer
	Whole    int64     // number of bytes up to the end of the last whole fragment
	Finished bool      // whether an index follows, which is the end of the file

	r         io.ReaderAt
	size      int64
	head      []byte // ftyp and moov
	scale     int64  // of decode times, in a second
	defaults  amp4.Trex
	samples   []sample
	fragments []fragment
	end       int64 // decode time after the last sample

	kept *keptNotes
}

// keptNotes holds the notes of one fragment.
type keptNotes struct {
	mu    sync.Mutex
	of    int
	notes map[int64][]byte // by decode time; nil: of none
}

// A sample holds the place, the decode time and the size of a picture.
type sample struct {
	offset, time int64
	sizeKey      uint32 // size, with keyBit
}

const keyBit = 1 << 31

func (s *sample) size() int64 { return int64(s.sizeKey &^ keyBit) }
func (s *sample) key() bool   { return s.sizeKey&keyBit != 0 }

// A fragment has the samples from first up to the next fragment's. Its notes are from start to moof.
type fragment struct {
	start, moof int64
	first       int
	anchor      anchor
}

// An anchor relates decode times to those of capture.
type anchor struct {
	decode int64
	at     time.Time
}

// An Info describes a picture of a file.
type Info struct {
	Offset   int64 // of its data
	Size     int
	Key      bool
	At       time.Time // capture time: exact for the first picture of a fragment, and rounded to the time scale for others
	Duration time.Duration
}

// From returns the same file, with pictures and notes that are read from r.
func (f *File) From(r io.ReaderAt) *File {
	g := *f
	g.r, g.kept = r, &keptNotes{}
	return &g
}

// Grown reads a file on that is now size bytes long, from the end of its last whole fragment.
func (f *File) Grown(r io.ReaderAt, size int64) (*File, error) {
	g := f.From(r)
	g.size, g.samples, g.fragments, g.Finished = size, slices.Clip(f.samples), slices.Clip(f.fragments), false
	if err := g.scan(); err != nil {
		return nil, err
	}
	return g, nil
}

// Len returns the number of pictures.
func (f *File) Len() int { return len(f.samples) }

// Fragments returns the number of fragments.
func (f *File) Fragments() int { return len(f.fragments) }

// Info describes a picture, from 0 to Len()-1.
func (f *File) Info(i int) Info {
	s, a := &f.samples[i], &f.fragments[f.fragmentOf(i)].anchor
	return Info{s.offset, int(s.size()), s.key(), a.at.Add(f.duration(s.time - a.decode)), f.duration(f.timeOf(i+1) - s.time)}
}

// Since returns the time from the first picture to picture i or, for Len(), to the end.
func (f *File) Since(i int) time.Duration { return f.duration(f.timeOf(i) - f.timeOf(0)) }

// timeOf returns the decode time of a picture, or that after the last one.
func (f *File) timeOf(i int) int64 {
	if i == len(f.samples) {
		return f.end
	}
	return f.samples[i].time
}

// duration converts ticks.
func (f *File) duration(ticks int64) time.Duration {
	s, ticks := ticks/f.scale, ticks%f.scale
	return time.Duration(s)*time.Second + time.Duration(ticks)*time.Second/time.Duration(f.scale)
}

// fragmentOf returns the number of the fragment that has a picture.
func (f *File) fragmentOf(i int) int {
	return sort.Search(len(f.fragments), func(n int) bool { return f.fragments[n].first > i }) - 1
}

// Data reads a picture as a Sample has it. Key pictures of H.264 begin with SPS and PPS.
func (f *File) Data(i int) ([]byte, error) {
	s := &f.samples[i]
	var b []byte
	if f.Track.Codec == H264 && s.key() {
		for _, unit := range [][]byte{f.Track.SPS, f.Track.PPS} {
			b = append(append(b, 0, 0, 0, 1), unit...)
		}
	}
	before := len(b)
	b = append(b, make([]byte, s.size())...)
	if _, err := f.r.ReadAt(b[before:], s.offset); err != nil {
		return nil, fmt.Errorf("mp4: reading picture %d at offset %d: %w", i, s.offset, noEOF(err))
	}
	if f.Track.Codec == H264 {
		if err := byteStream(b[before:]); err != nil {
			return nil, fmt.Errorf("mp4: picture %d at offset %d: %w", i, s.offset, err)
		}
	}
	return b, nil
}

// noEOF replaces io.EOF, for reads that must not meet the end of the file.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// HasEnd reports whether a file of size bytes ends with an index, whose last box has the index's length.
func HasEnd(r io.ReaderAt, size int64) (bool, error) {
	const mfro = 16 // bytes
	var b [mfro]byte
	if size < 2*mfro {
		return false, nil
	}
	if _, err := r.ReadAt(b[:], size-mfro); err != nil {
		return false, err
	}
	n := int64(be.Uint32(b[12:]))
	if amp4.BoxType(b[4:8]) != amp4.BoxTypeMfro() || n < mfro || n > size {
		return false, nil
	}
	if _, err := r.ReadAt(b[:8], size-n); err != nil {
		return false, err
	}
	return int64(be.Uint32(b[:])) == n && amp4.BoxType(b[4:8]) == amp4.BoxTypeMfra(), nil
}

// DamagedInside reports whether a file of a Writer is damaged before its end: behind the last whole fragment, and the
// beginning of the next one, another fragment begins, or there is an index.
func (f *File) DamagedInside(ctx context.Context) (bool, error) {
	if has, err := HasEnd(f.r, f.size); has || err != nil {
		return has && !f.Finished, err
	}
	begin := []byte{0, 0, 0, 32, 'p', 'r', 'f', 't', 1, 0, 0, prftFlags}
	b := make([]byte, 1<<20)
	for at := f.Whole + int64(len(begin)); at < f.size; at += int64(len(b) - len(begin)) {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		part := b[:min(int64(len(b)), f.size-at)]
		if _, err := f.r.ReadAt(part, at); err != nil {
			return false, fmt.Errorf("mp4: reading at offset %d: %w", at, noEOF(err))
		}
		if bytes.Contains(part, begin) {
			return true, nil
		}
	}
	return false, nil
}

// Finish writes the index of a file that ends at f.Whole, as Close of its Writer would have done. Repair cuts a file
// there, and appends this.
func (f *File) Finish(w io.Writer) error {
	var keys []key
	for n, of := range f.fragments {
		next := len(f.samples)
		if n+1 < len(f.fragments) {
			next = f.fragments[n+1].first
		}
		for i := of.first; i < next; i++ {
			if s := &f.samples[i]; s.key() {
				keys = append(keys, key{s.time, of.moof, uint32(i - of.first + 1)})
				break
			}
		}
	}
	return writeIndex(w, keys)
}
