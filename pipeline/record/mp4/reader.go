// SPDX-License-Identifier: Apache-2.0

package mp4

import (
	"errors"
	"fmt"
	"io"

	amp4 "github.com/abema/go-mp4"
)

// Flags of a trun box: which fields it has.
const (
	trunOffset     = 0x001
	trunFirstFlags = 0x004
	trunDuration   = 0x100
	trunSize       = 0x200
	trunFlags      = 0x400
	trunShift      = 0x800
)

// ErrForeign means that a file is MP4, but not as a Writer writes it, and this package cannot read it.
var ErrForeign = errors.New("it is not a recording made by tegracast: open it with a player or ffprobe")

// Read finds the pictures of a file of size bytes, without reading them. A file that was cut, is damaged or is still
// being written is read up to its last whole fragment, which may be none. Read returns an error if the file cannot be
// read or does not begin with whole ftyp and moov boxes. The error wraps ErrForeign if it is not fragmented MP4 with one
// track of H.264 or JPEG in display order.
func Read(r io.ReaderAt, size int64) (*File, error) {
	f := &File{r: r, size: size, kept: &keptNotes{}}
	in := &window{r: r, size: size}
	at := int64(0)
	for typ := (amp4.BoxType{}); typ != amp4.BoxTypeMoov(); {
		var n int64
		var err error
		if typ, n, err = in.box(at); err != nil {
			return nil, err
		}
		if n == 0 || at+n > maxHead || at == 0 && typ != amp4.BoxTypeFtyp() {
			return nil, fmt.Errorf("mp4: the file of %d bytes does not begin with ftyp and moov boxes: it was cut before its first picture, or is no MP4", size)
		}
		at += n
	}
	head, err := in.bytes(0, at)
	if err != nil {
		return nil, err
	}
	f.head, f.Whole = append([]byte(nil), head...), at
	if err := f.readHead(); err != nil {
		return nil, err
	}
	if err := f.scan(); err != nil {
		return nil, err
	}
	return f, nil
}

// scan reads the fragments from f.Whole on, as far as they are whole.
func (f *File) scan() error {
	in := &window{r: f.r, size: f.size}
	next := fragment{start: f.Whole, anchor: anchor{at: f.Begun}}
	if n := len(f.fragments); n > 0 {
		next.anchor = f.fragments[n-1].anchor
	}
	if err := f.scanFrom(in, next); err != nil {
		return err
	}
	if len(f.fragments) > 0 {
		a := &f.fragments[0].anchor
		f.Begun = a.at.Add(-f.duration(a.decode))
	}
	return nil
}

// scanFrom reads the fragments from next on.
func (f *File) scanFrom(in *window, next fragment) error {
	for at := f.Whole; ; {
		typ, n, err := in.box(at)
		if n == 0 || err != nil {
			return err
		}
		switch typ {
		case amp4.BoxTypeMfra():
			f.Finished = at == f.Whole && at+n == f.size
			return nil
		case boxTypePrft:
			b, err := in.payload(at, min(n, 64))
			if err != nil {
				return err
			}
			if t, decode, ok := readPrft(b); ok {
				next.anchor = anchor{decode, t}
			}
		case amp4.BoxTypeMoof():
			next.moof = at
			ok, err := f.fragment(in, &next, n)
			if !ok || err != nil {
				return err
			}
			at, n = f.Whole, 0
			next.start = at
		}
		at += n
	}
}

// fragment reads a moof box of n bytes, and keeps the fragment if it is whole. It reports whether it is.
func (f *File) fragment(in *window, of *fragment, n int64) (bool, error) {
	if n > maxMoof {
		return false, nil
	}
	b, err := in.payload(of.moof, n)
	if err != nil || int64(len(b)) < n-amp4.LargeHeaderSize {
		return false, err
	}
	of.first = len(f.samples)
	end, err := f.run(b, of.moof)
	if errors.Is(err, ErrForeign) {
		return false, fmt.Errorf("mp4: the moof box at offset %d: %w", of.moof, err)
	}
	if err == nil {
		var typ amp4.BoxType
		var size int64
		at := of.moof + n
		if typ, size, err = in.box(at); err != nil {
			return false, err
		}
		last := len(f.samples) - 1
		if typ == amp4.BoxTypeMdat() && size > 0 && last >= of.first &&
			f.samples[of.first].offset >= at+amp4.SmallHeaderSize && f.samples[last].offset+f.samples[last].size() <= at+size {
			f.fragments = append(f.fragments, *of)
			f.Whole, f.end = at+size, end
			return true, nil
		}
	}
	f.samples = f.samples[:of.first]
	return false, nil
}

// run appends the samples of a moof box, whose contents are b, and returns the decode time after them.
func (f *File) run(b []byte, moof int64) (end int64, err error) {
	var tfhd amp4.Tfhd
	var trun []byte
	end = f.end
	seen := map[amp4.BoxType]bool{}
	err = walk(b, 1, func(typ amp4.BoxType, payload []byte) error {
		switch typ {
		case amp4.BoxTypeTraf(), amp4.BoxTypeTrun(), amp4.BoxTypeTfhd(), amp4.BoxTypeTfdt():
			if seen[typ] {
				return fmt.Errorf("more than one: %w", ErrForeign)
			}
			seen[typ] = true
		}
		switch typ {
		case amp4.BoxTypeTfhd():
			return unmarshal(payload, &tfhd)
		case amp4.BoxTypeTfdt():
			var tfdt amp4.Tfdt
			if err := unmarshal(payload, &tfdt); err != nil {
				return err
			}
			t := max(uint64(tfdt.BaseMediaDecodeTimeV0), tfdt.BaseMediaDecodeTimeV1)
			if t/uint64(f.scale) >= 1<<32 {
				return errMalformed
			}
			end = max(end, int64(t))
		case amp4.BoxTypeTrun():
			trun = payload
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	if tfhd.TrackID != f.defaults.TrackID || len(trun) < 8 {
		return 0, errMalformed
	}
	if tfhd.CheckFlag(amp4.TfhdBaseDataOffsetPresent) {
		moof = int64(tfhd.BaseDataOffset)
	}
	return f.table(trun, moof, end, f.sampleDefaults(&tfhd))
}

// An entry holds the fields of a sample in a trun box.
type entry struct{ duration, size, flags uint32 }

// sampleDefaults returns what applies to samples without an entry of their own.
func (f *File) sampleDefaults(tfhd *amp4.Tfhd) entry {
	e := entry{f.defaults.DefaultSampleDuration, f.defaults.DefaultSampleSize, f.defaults.DefaultSampleFlags}
	if tfhd.CheckFlag(amp4.TfhdDefaultSampleDurationPresent) {
		e.duration = tfhd.DefaultSampleDuration
	}
	if tfhd.CheckFlag(amp4.TfhdDefaultSampleSizePresent) {
		e.size = tfhd.DefaultSampleSize
	}
	if tfhd.CheckFlag(amp4.TfhdDefaultSampleFlagsPresent) {
		e.flags = tfhd.DefaultSampleFlags
	}
	return e
}

// table appends the samples of a trun box, and returns the decode time after them.
func (f *File) table(b []byte, offset, at int64, defaults entry) (int64, error) {
	has, count := be.Uint32(b)&0xffffff, int64(be.Uint32(b[4:]))
	b = b[8:]
	field := func(flag uint32, field *uint32) {
		if has&flag != 0 && len(b) >= 4 {
			*field, b = be.Uint32(b), b[4:]
		}
	}
	var shift uint32
	first := defaults.flags
	field(trunOffset, &shift)
	field(trunFirstFlags, &first)
	offset += int64(int32(shift))
	row := int64(0)
	for _, flag := range []uint32{trunDuration, trunSize, trunFlags, trunShift} {
		if has&flag != 0 {
			row += 4
		}
	}
	// The box may have no entries for its samples. Then the file has room for that many of the default size.
	if offset < 0 || count*row > int64(len(b)) || has&trunSize == 0 && count*max(int64(defaults.size), 1) > f.size {
		return 0, errMalformed
	}
	if count > MaxSamples-int64(len(f.samples)) {
		return 0, fmt.Errorf("more than %d pictures in a file: %w", MaxSamples, ErrForeign)
	}
	for i := range count {
		e := defaults
		if i == 0 {
			e.flags = first
		}
		shift = 0
		field(trunDuration, &e.duration)
		field(trunSize, &e.size)
		field(trunFlags, &e.flags)
		field(trunShift, &shift)
		if e.size == 0 || e.size > maxPicture {
			return 0, errMalformed
		}
		if shift != 0 {
			return 0, fmt.Errorf("pictures out of display order: %w", ErrForeign)
		}
		if e.flags&notSync == 0 {
			e.size |= keyBit
		}
		f.samples = append(f.samples, sample{offset, at, e.size})
		offset += int64(e.size &^ keyBit)
		at += max(int64(e.duration), 1)
	}
	return at, nil
}

// A window reads the boxes of a file, several small ones at a time.
type window struct {
	r        io.ReaderAt
	size, at int64
	b        []byte
}

// bytes returns n bytes at an offset until the next call, or as many as the file has.
func (w *window) bytes(at, n int64) ([]byte, error) {
	if n = min(n, w.size-at); n <= 0 {
		return nil, nil
	}
	if at < w.at || at+n > w.at+int64(len(w.b)) {
		length := min(max(n, 1<<15), w.size-at)
		if int64(cap(w.b)) < length {
			w.b = make([]byte, length)
		}
		read, err := w.r.ReadAt(w.b[:length], at)
		w.at, w.b = at, w.b[:read]
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("mp4: reading at offset %d: %w", at, err)
		}
	}
	b := w.b[at-w.at:]
	return b[:min(n, int64(len(b)))], nil
}

// box returns the type and the size of the box at an offset. The size is 0 if the box is not whole.
func (w *window) box(at int64) (amp4.BoxType, int64, error) {
	b, err := w.bytes(at, amp4.LargeHeaderSize)
	if err != nil {
		return amp4.BoxType{}, 0, err
	}
	typ, _, n, ok := header(b)
	if !ok || n > w.size-at {
		n = 0
	}
	return typ, n, nil
}

// payload reads n bytes of the box at an offset, and returns those after its header.
func (w *window) payload(at, n int64) ([]byte, error) {
	b, err := w.bytes(at, n)
	if err != nil {
		return nil, err
	}
	_, length, _, _ := header(b)
	return b[min(length, int64(len(b))):], nil
}
