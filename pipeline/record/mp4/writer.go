// SPDX-License-Identifier: Apache-2.0

package mp4

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	amp4 "github.com/abema/go-mp4"
)

// A Sample is one encoded picture.
type Sample struct {
	Data []byte    // H.264: the access unit as a byte stream (Annex B); JPEG: the file
	Key  bool      // whether the picture can be decoded alone
	At   time.Time // capture time
	Note []byte    // JSON about the picture, or nil
}

// Flags of a sample (ISO/IEC 14496-12, 8.8.3.1): it depends on no others, or it does and is no sync sample.
const (
	flagsKey = 0x02000000
	flagsNot = 0x01010000
	notSync  = 0x00010000
)

// A Writer writes a file, fragment by fragment.
type Writer struct {
	w     io.Writer
	track Track
	begun time.Time
	err   error // of a write that failed, or that the Writer is closed

	offset  int64 // bytes written
	samples int
	next    int64 // decode time after the last sample
	end     int64 // capture time after it, which differs once the clock was set
	number  uint32
	keys    []key

	durations []uint32 // of the fragment
	l         *layout  // of the fragment
}

// A key is an entry of the index: the first key picture of a fragment.
type key struct {
	time, moof int64
	number     uint32 // in the fragment, from 1
}

// NewWriter begins a file, with one write. Decode times in the file count from begun, the capture time of the first
// picture.
func NewWriter(w io.Writer, t Track, begun time.Time) (*Writer, error) {
	head, err := t.head(begun)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(head); err != nil {
		return nil, err
	}
	t.SPS, t.PPS = bytes.Clone(t.SPS), bytes.Clone(t.PPS) // the caller may use their memory again
	return &Writer{w: w, track: t, begun: begun, offset: int64(len(head)), l: newLayout()}, nil
}

// ticks returns a capture time in the time scale, from begun on.
func (w *Writer) ticks(t time.Time) int64 {
	ns := t.UnixNano() - w.begun.UnixNano()
	s, ns := ns/int64(time.Second), ns%int64(time.Second)
	return s*timeScale + (ns*timeScale+int64(time.Second)/2)/int64(time.Second)
}

// page is the unit of the layout in bytes.
const page = 4096

// Fragment writes pictures as one fragment, with one write. What it writes lies as its pages in the file do if it is
// long: memory of the Go runtime from 32 KiB on begins with a page. The capture time of the picture after them is end. A
// picture lasts until the next one, or one tick of the time scale if the next one is not later. If the write fails, the
// file can be read up to the fragment before, and all further calls return the same error. After any other error,
// nothing has been written.
func (w *Writer) Fragment(samples []Sample, end time.Time) error {
	if w.err != nil {
		return w.err
	}
	if err := w.check(samples); err != nil {
		return err
	}
	base := w.next + clamp(w.ticks(samples[0].At)-w.end, 0)
	next := w.measure(samples, base, end)
	l := w.l
	l.reset(int(w.offset % page))
	l.prft(samples[0].At, base)
	w.notes(samples, base)
	w.pad(len(samples))
	moof := l.len()
	table := w.moof(len(samples), base)
	l.begin(amp4.BoxTypeMdat())
	be.PutUint32(l.bytes()[table-4:], uint32(l.len()-moof)) // the data offset
	for i := range samples {
		at := l.len()
		if err := w.picture(&samples[i]); err != nil {
			return err
		}
		entry, flags := l.bytes()[table+12*i:], uint32(flagsNot)
		if samples[i].Key {
			flags = flagsKey
		}
		be.PutUint32(entry, w.durations[i])
		be.PutUint32(entry[4:], uint32(l.len()-at))
		be.PutUint32(entry[8:], flags)
	}
	l.end()
	if l.err != nil {
		return l.err
	}
	if _, w.err = w.w.Write(l.bytes()); w.err != nil {
		return w.err
	}
	w.index(samples, base, w.offset+int64(moof))
	w.offset += int64(l.len())
	w.samples += len(samples)
	w.next, w.end = next, w.ticks(end)
	w.number++
	return nil
}

// check returns an error if the pictures cannot be the next fragment.
func (w *Writer) check(samples []Sample) error {
	data, notes := 0, 0
	for i := range samples {
		s := &samples[i]
		if len(s.Data) == 0 || len(s.Data) > maxPicture/2 {
			return fmt.Errorf("mp4: a picture of %d bytes: it must have 1 to %d", len(s.Data), maxPicture/2)
		}
		data += len(s.Data)
		notes += len(s.Note)
	}
	switch {
	case len(samples) == 0:
		return errors.New("mp4: a fragment needs at least one picture")
	case w.samples+len(samples) > MaxSamples:
		return fmt.Errorf("mp4: the file has %d pictures, and may have %d: begin another file", w.samples, MaxSamples)
	case moofSize(len(samples)) > maxMoof || data > maxFragment || notes > maxNotes:
		return fmt.Errorf("mp4: a fragment with %d pictures of %d bytes and %d bytes of notes: write it as several", len(samples), data, notes)
	}
	return nil
}

// clamp returns a duration that a table of samples can have, at least low.
func clamp(d, low int64) int64 { return max(low, min(d, math.MaxUint32)) }

// measure computes the durations of pictures, and returns the decode time after the last one.
func (w *Writer) measure(samples []Sample, base int64, end time.Time) int64 {
	w.durations = w.durations[:0]
	at := w.ticks(samples[0].At)
	for i := range samples {
		next := w.ticks(end)
		if i+1 < len(samples) {
			next = w.ticks(samples[i+1].At)
		}
		d := clamp(next-at, 1)
		w.durations = append(w.durations, uint32(d))
		at, base = next, base+d
	}
	return base
}

// pad lays out a free box so that the moof box of n samples, which follows, does not cross a page of the file, unless
// it is larger than a page. After a power cut or a kill, and for a program that reads while this one writes, a file may
// end between two pages of the last write, and FFmpeg does not open a file that ends within a moof box.
func (w *Writer) pad(n int) {
	room, size := page-int(w.offset+int64(w.l.len()))%page, moofSize(n)
	if size <= room || size > page {
		return
	}
	if room < amp4.SmallHeaderSize {
		room += page
	}
	w.l.box(&amp4.Free{Data: make([]uint8, room-amp4.SmallHeaderSize)})
}

// moofSize returns the size of the moof box of n samples.
func moofSize(n int) int { return 88 + 12*n }

// moof lays out the moof box with room for the table of n samples, and returns where the table is.
func (w *Writer) moof(n int, base int64) int {
	l := w.l
	l.begin(amp4.BoxTypeMoof())
	l.box(&amp4.Mfhd{SequenceNumber: w.number + 1})
	l.begin(amp4.BoxTypeTraf())
	tfhd := &amp4.Tfhd{TrackID: trackID}
	tfhd.SetFlags(amp4.TfhdDefaultBaseIsMoof)
	l.box(tfhd)
	l.box(&amp4.Tfdt{FullBox: amp4.FullBox{Version: 1}, BaseMediaDecodeTimeV1: uint64(base)})
	l.begin(amp4.BoxTypeTrun())
	l.uint32s(trunOffset|trunDuration|trunSize|trunFlags, uint32(n), 0)
	table := l.len()
	for range n {
		l.uint32s(0, 0, 0)
	}
	l.end()
	l.end()
	l.end()
	return table
}

// picture lays out the data of a picture. Of the units of H.264 it leaves out delimiters, and parameter sets that the
// head of the file has. Another PPS stays, because players take those in the stream.
func (w *Writer) picture(s *Sample) error {
	if w.track.Codec == JPEG {
		w.l.write(s.Data)
		return nil
	}
	begin := w.l.len()
	for unit := range units(s.Data) {
		switch unit[0] & 0x1f {
		case unitSPS:
			if !bytes.Equal(unit, w.track.SPS) {
				return errors.New("mp4: the access unit has another SPS than the file: begin another file")
			}
			continue
		case unitPPS:
			if bytes.Equal(unit, w.track.PPS) {
				continue
			}
		case unitDelimiter:
			continue
		}
		w.l.uint32s(uint32(len(unit)))
		w.l.write(unit)
	}
	if w.l.len() == begin {
		return fmt.Errorf("mp4: an access unit of %d bytes is no byte stream (Annex B) with a picture", len(s.Data))
	}
	return nil
}

// index adds the first key picture of a fragment to the index.
func (w *Writer) index(samples []Sample, base, moof int64) {
	for i := range samples {
		if samples[i].Key {
			w.keys = append(w.keys, key{base, moof, uint32(i + 1)})
			return
		}
		base += int64(w.durations[i])
	}
}

// Close writes the index, which ends the file. It does not close the underlying writer. After an error of a write it
// writes nothing, and returns that error.
func (w *Writer) Close() error {
	if w.err != nil {
		return w.err
	}
	w.err = writeIndex(w.w, w.keys)
	if w.err != nil {
		return w.err
	}
	w.err = errors.New("mp4: the writer is closed")
	return nil
}

// writeIndex writes an mfra box.
func writeIndex(w io.Writer, keys []key) error {
	l := newLayout()
	l.begin(amp4.BoxTypeMfra())
	l.begin(amp4.BoxTypeTfra())
	l.uint32s(1<<24, trackID, 3, uint32(len(keys))) // version 1; traf and trun numbers of 8 bits, sample numbers of 32
	for _, k := range keys {
		l.uint32s(uint32(k.time>>32), uint32(k.time), uint32(k.moof>>32), uint32(k.moof))
		l.write([]byte{1, 1})
		l.uint32s(k.number)
	}
	l.end()
	l.box(&amp4.Mfro{Size: uint32(l.len() + 16)})
	l.end()
	if l.err != nil {
		return l.err
	}
	_, err := w.Write(l.bytes())
	return err
}
