// SPDX-License-Identifier: Apache-2.0

package mp4

import (
	"bytes"
	"fmt"
	"time"

	amp4 "github.com/abema/go-mp4"
)

// noteScheme is the scheme of the emsg boxes with notes.
const noteScheme = "urn:tegracast:frame:1"

// noteFields is the length of the fields of an emsg box of version 1, which the scheme and its empty value follow.
const noteFields = 24

var schemeAndValue = []byte(noteScheme + "\x00\x00")

// The epoch of NTP is 1900, in seconds before 1970.
const epoch1900 = 2208988800

// prftFlags marks the time of a ProducerReferenceTimeBox as that of capture.
const prftFlags = 24

var boxTypePrft = amp4.StrToBoxType("prft")

// prft lays out a ProducerReferenceTimeBox, which says when the picture at a decode time was captured.
func (l *layout) prft(at time.Time, decode int64) {
	l.begin(boxTypePrft)
	fraction := (uint64(at.Nanosecond())<<32 + uint64(time.Second)/2) / uint64(time.Second)
	l.uint32s(1<<24|prftFlags, trackID, uint32(at.Unix()+epoch1900), uint32(fraction), uint32(decode>>32), uint32(decode))
	l.end()
}

// readPrft decodes a ProducerReferenceTimeBox: a time, whose year is taken to be 1968 to 2104, and its decode time.
func readPrft(b []byte) (at time.Time, decode int64, ok bool) {
	if len(b) < 20 {
		return at, 0, false
	}
	seconds, fraction := int64(be.Uint32(b[8:])), uint64(be.Uint32(b[12:]))
	if seconds < 1<<31 {
		seconds += 1 << 32
	}
	at = time.Unix(seconds-epoch1900, int64((fraction*uint64(time.Second)+1<<31)>>32))
	if b[0] == 0 {
		return at, int64(be.Uint32(b[16:])), true
	}
	if len(b) < 24 {
		return at, 0, false
	}
	decode = int64(be.Uint64(b[16:]))
	return at, decode, decode >= 0
}

// notes lays out the notes of the pictures of a fragment.
func (w *Writer) notes(samples []Sample, base int64) {
	l := w.l
	for i := range samples {
		if n := len(samples[i].Note); n > 0 {
			size := amp4.SmallHeaderSize + noteFields + len(schemeAndValue) + n
			l.uint32s(uint32(size), be.Uint32([]byte("emsg")))
			l.uint32s(1<<24, timeScale, uint32(base>>32), uint32(base), w.durations[i], uint32(w.samples+i+1))
			l.write(schemeAndValue)
			l.write(samples[i].Note)
		}
		base += int64(w.durations[i])
	}
}

// readNote decodes an emsg box with a note, and returns its decode time and the note.
func readNote(b []byte, scale int64) (decode int64, note []byte, ok bool) {
	if len(b) < noteFields || b[0] != 1 || int64(be.Uint32(b[4:])) != scale {
		return 0, nil, false
	}
	note, ok = bytes.CutPrefix(b[noteFields:], schemeAndValue)
	return int64(be.Uint64(b[8:])), note, ok
}

// Note returns the note of a picture, or nil if it has none. It reads the notes of a fragment at once, and keeps them
// until a note of another fragment is asked for.
func (f *File) Note(i int) ([]byte, error) {
	n, kept := f.fragmentOf(i), f.kept
	kept.mu.Lock()
	defer kept.mu.Unlock()
	if kept.notes == nil || kept.of != n {
		notes, err := f.readNotes(&f.fragments[n])
		if err != nil {
			return nil, err
		}
		kept.notes, kept.of = notes, n
	}
	return kept.notes[f.samples[i].time], nil
}

// readNotes returns the notes of a fragment by decode time.
func (f *File) readNotes(of *fragment) (map[int64][]byte, error) {
	if of.moof-of.start > 2*maxNotes {
		return nil, fmt.Errorf("mp4: the notes of a fragment have %d bytes: %d is the limit", of.moof-of.start, 2*maxNotes)
	}
	b := make([]byte, of.moof-of.start)
	if _, err := f.r.ReadAt(b, of.start); err != nil {
		return nil, fmt.Errorf("mp4: reading notes at offset %d: %w", of.start, err)
	}
	notes := map[int64][]byte{}
	err := walk(b, 0, func(typ amp4.BoxType, payload []byte) error {
		if typ == amp4.BoxTypeEmsg() {
			if at, note, ok := readNote(payload, f.scale); ok {
				notes[at] = note
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("mp4: notes at offset %d: %w", of.start, err)
	}
	return notes, nil
}
