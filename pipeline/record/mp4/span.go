// SPDX-License-Identifier: Apache-2.0

package mp4

import (
	"fmt"
	"io"
	"math"
	"sort"
	"time"

	amp4 "github.com/abema/go-mp4"
)

// A Span is a part of the pictures of a file as an MP4 file of its own, without fragments. It has the boxes before the
// pictures in memory, and reads the pictures from the file. ReadAt may be called at the same time.
type Span struct {
	f    *File
	head []byte
	runs []run
	size int64
}

// A run is a piece of the file with pictures, at offset in the Span.
type run struct{ offset, from, size int64 }

// Span returns the pictures from the one with number from up to the one with number to, which is not included. If the
// first is not a key picture, the Span has the pictures from the key picture before it, and an edit list that makes
// players show them from the first on.
func (f *File) Span(from, to int) (*Span, error) {
	if from < 0 || to > len(f.samples) || from >= to {
		return nil, fmt.Errorf("mp4: pictures from %d up to %d of %d: the first must be before the second", from, to, len(f.samples))
	}
	key := from
	for key > 0 && !f.samples[key].key() {
		key--
	}
	t := f.tables(key, from, to)
	head, err := t.head(f, f.Info(from).At)
	if err != nil {
		return nil, err
	}
	return &Span{f: f, head: head, runs: t.runs, size: int64(len(head)) + t.bytes}, nil
}

// Size returns the number of bytes.
func (s *Span) Size() int64 { return s.size }

// ReadAt reads bytes of the Span.
func (s *Span) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, fmt.Errorf("mp4: negative offset %d", off)
	}
	if off < int64(len(s.head)) {
		n = copy(p, s.head[off:])
		off += int64(n)
	}
	i := sort.Search(len(s.runs), func(i int) bool { return s.runs[i].offset+s.runs[i].size > off })
	for ; n < len(p) && i < len(s.runs); i++ {
		r := &s.runs[i]
		part := p[n:]
		part = part[:min(int64(len(part)), r.offset+r.size-off)]
		read, err := s.f.r.ReadAt(part, r.from+off-r.offset)
		n, off = n+read, off+int64(read)
		if read < len(part) {
			return n, fmt.Errorf("mp4: reading pictures at offset %d: %w", r.from+off-r.offset, noEOF(err))
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// The tables of a Span say what its samples are.
type tables struct {
	runs         []run
	sizes        []uint32
	durations    []uint32 // for stts: pairs of how many and how long
	chunks       []uint32 // for stsc: triples of the first chunk, how many samples each has, and 1
	keys         []uint32 // for stss
	bytes        int64
	hidden, show int64 // ticks before the first picture that is shown, and of those that are
}

// tables returns the tables of the samples from key up to to, of which those from from on are shown.
func (f *File) tables(key, from, to int) *tables {
	t := &tables{sizes: make([]uint32, 0, to-key)}
	inRun := 0
	for i := key; i < to; i++ {
		s := &f.samples[i]
		if n := len(t.runs); n == 0 || t.runs[n-1].from+t.runs[n-1].size != s.offset {
			t.chunk(inRun)
			t.runs = append(t.runs, run{from: s.offset})
			inRun = 0
		}
		inRun++
		t.runs[len(t.runs)-1].size += s.size()
		t.bytes += s.size()
		t.sizes = append(t.sizes, uint32(s.size()))
		if s.key() {
			t.keys = append(t.keys, uint32(len(t.sizes)))
		}
		d := clamp(f.timeOf(i+1)-s.time, 1)
		if i < from {
			t.hidden += d
		} else {
			t.show += d
		}
		if n := len(t.durations); n > 0 && t.durations[n-1] == uint32(d) {
			t.durations[n-2]++
		} else {
			t.durations = append(t.durations, 1, uint32(d))
		}
	}
	t.chunk(inRun)
	return t
}

// chunk adds the last run as a chunk of n samples.
func (t *tables) chunk(n int) {
	if last := len(t.chunks); n > 0 && (last == 0 || t.chunks[last-2] != uint32(n)) {
		t.chunks = append(t.chunks, uint32(len(t.runs)), uint32(n), 1)
	}
}

// head returns the boxes before the pictures, and sets the offsets of the runs.
func (t *tables) head(f *File, begun time.Time) ([]byte, error) {
	// The boxes but the tables have less than twice the space that they may have in a file.
	numbers := len(t.sizes) + len(t.durations) + len(t.chunks) + len(t.keys) + len(t.runs)
	long := t.bytes+4*int64(numbers)+2*maxHead > math.MaxUint32
	offsets := 0
	b, err := rewrite(f.head, func(l *layout, box amp4.IBox) bool {
		switch box := box.(type) {
		case *amp4.Ftyp:
			setBrands(box, "isom", "iso2", "mp41", "mp42")
		case *amp4.Mvhd:
			setBegun(box, begun)
			// The tracks say how long they are shown. GStreamer 1.22 compares this duration with decode times that count
			// the hidden pictures, and ends at a key picture behind it.
			box.Timescale, box.DurationV1 = uint32(f.scale), uint64(t.hidden+t.show)
		case *amp4.Tkhd:
			box.SetVersion(1)
			box.DurationV1 = uint64(t.show)
			l.box(box)
			t.edits(l)
			return false
		case *amp4.Mdhd:
			box.SetVersion(1)
			box.DurationV1 = uint64(t.hidden + t.show)
		case *amp4.Stts:
			offsets = t.write(l, long)
			return false
		case *amp4.Edts, *amp4.Ctts, *amp4.Stss, *amp4.Stsc, *amp4.Stsz, *amp4.Stco, *amp4.Co64, *amp4.Sdtp, *amp4.Mvex, *amp4.Btrt:
			return false
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	if offsets == 0 {
		return nil, fmt.Errorf("mp4: the moov box has no stts box")
	}
	length := uint32(amp4.SmallHeaderSize)
	if long {
		length = amp4.LargeHeaderSize
	}
	at := int64(len(b)) + int64(length)
	for i := range t.runs {
		t.runs[i].offset = at
		if long {
			be.PutUint64(b[offsets+8*i:], uint64(at))
		} else {
			be.PutUint32(b[offsets+4*i:], uint32(at))
		}
		at += t.runs[i].size
	}
	if long {
		b = append(b, 0, 0, 0, 1, 'm', 'd', 'a', 't')
		return be.AppendUint64(b, uint64(t.bytes)+uint64(length)), nil
	}
	return append(be.AppendUint32(b, uint32(t.bytes)+length), "mdat"...), nil
}

// edits lays out an edit list that begins with the first picture that is shown.
func (t *tables) edits(l *layout) {
	if t.hidden == 0 {
		return
	}
	l.begin(amp4.BoxTypeEdts())
	l.box(&amp4.Elst{
		FullBox: amp4.FullBox{Version: 1}, EntryCount: 1,
		Entries: []amp4.ElstEntry{{SegmentDurationV1: uint64(t.show), MediaTimeV1: t.hidden, MediaRateInteger: 1}},
	})
	l.end()
}

// write lays out the tables, and returns where room is for the offsets of the runs.
func (t *tables) write(l *layout, long bool) (offsets int) {
	l.table(amp4.BoxTypeStts(), t.durations, uint32(len(t.durations)/2))
	if len(t.keys) < len(t.sizes) {
		l.table(amp4.BoxTypeStss(), t.keys, uint32(len(t.keys)))
	}
	l.table(amp4.BoxTypeStsc(), t.chunks, uint32(len(t.chunks)/3))
	l.table(amp4.BoxTypeStsz(), t.sizes, 0, uint32(len(t.sizes)))
	typ, room := amp4.BoxTypeStco(), make([]uint32, len(t.runs))
	if long {
		typ, room = amp4.BoxTypeCo64(), make([]uint32, 2*len(t.runs))
	}
	l.table(typ, room, uint32(len(t.runs)))
	return l.len() - 4*len(room)
}

// table lays out a box of version 0 with fields and numbers.
func (l *layout) table(typ amp4.BoxType, numbers []uint32, fields ...uint32) {
	l.begin(typ)
	l.uint32s(0)
	l.uint32s(fields...)
	l.uint32s(numbers...)
	l.end()
}
