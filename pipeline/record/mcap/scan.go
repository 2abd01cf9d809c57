// SPDX-License-Identifier: Apache-2.0

package mcap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
)

// endSize holds the lengths in bytes of the records that end the data of a file.
var endSize = map[Opcode]int64{OpDataEnd: 4, OpFooter: 20}

// scan reads the records from the beginning to the end of the data, and skips damaged places if it finds where to
// continue.
func (f *File) scan(ctx context.Context) error {
	for f.End = int64(len(Magic)); f.End < f.size; {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := f.head(f.End)
		if err == nil {
			ends := h.op == OpDataEnd || h.op == OpFooter
			switch {
			case ends && h.length == endSize[h.op]:
				return nil
			case ends:
				err = fmt.Errorf("%w: an end of %d bytes", ErrDamaged, h.length)
			default:
				err = f.addRecord(h, f.End)
			}
			if err == nil {
				f.End += recordHead + h.length
				continue
			}
		}
		cut := errors.Is(err, io.ErrUnexpectedEOF)
		if !cut && !errors.Is(err, ErrDamaged) {
			return err
		}
		if !cut && f.zeros(ctx, f.End) { // its space was allocated, but it was not written
			return nil
		}
		next := f.resume(ctx, f.End)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if next == 0 && cut { // the file just ends
			return nil
		}
		f.damaged(err, next)
		if next == 0 {
			return nil
		}
		f.End = next
	}
	return nil
}

// damaged counts the damaged place at End and, for the first maxSkipped places, adds err to Trouble. next is the offset
// at which the scan continues, or 0 if it does not.
func (f *File) damaged(err error, next int64) {
	f.gaps = append(f.gaps, Gap{f.End, next, len(f.Chunks)})
	if len(f.gaps) > maxSkipped {
		return
	}
	err = fmt.Errorf("at byte %d: %w", f.End, err)
	if next > 0 {
		err = fmt.Errorf("%w: %w: %d bytes are skipped", ErrDamaged, err, next-f.End)
	}
	f.Trouble = errors.Join(f.Trouble, err)
}

const (
	maxSkipped = 10      // number of recorded places
	maxGap     = 1 << 30 // maximum number of bytes skipped at a time; chunks are shorter
	chunkUnit  = 4096    // chunks made by Writer.Frame begin at multiples of this
)

// resume returns the offset of the first chunk that begins after offset at, at a multiple of chunkUnit, and is followed
// by a message index. It returns 0 if no such chunk begins within maxGap bytes, or if ctx ends.
func (f *File) resume(ctx context.Context, at int64) int64 {
	end := min(f.size, at+maxGap)
	at = (at/chunkUnit + 1) * chunkUnit
	for b := make([]byte, max(0, min(64<<10, end-at))); at < end && ctx.Err() == nil; at += int64(len(b)) {
		n, _ := f.r.ReadAt(b[:min(int64(len(b)), end-at)], at) // unreadable bytes are skipped too
		for i := 0; i < n; i += chunkUnit {
			if Opcode(b[i]) == OpChunk && f.isChunk(at+int64(i)) {
				return at + int64(i)
			}
		}
	}
	return 0
}

// isChunk reports whether a chunk begins at offset at and is followed by a message index.
func (f *File) isChunk(at int64) bool {
	h, err := f.head(at)
	if err != nil {
		return false
	}
	if _, err = f.chunkAt(at, h.length); err != nil {
		return false
	}
	behind, err := f.head(at + recordHead + h.length)
	return err == nil && behind.op == OpMessageIndex
}

// maxZeros is the maximum number of zeros at the end of a file for it to be treated as unfinished.
const maxZeros = 1 << 30

// zeros reports whether the bytes from at to the end are all zero and no more than maxZeros. It returns false if they
// cannot be read or ctx ends.
func (f *File) zeros(ctx context.Context, at int64) bool {
	if f.size-at > maxZeros {
		return false
	}
	for b, none := make([]byte, 64<<10), make([]byte, 64<<10); at < f.size && ctx.Err() == nil; {
		n, err := f.r.ReadAt(b[:min(int64(len(b)), f.size-at)], at)
		if n == 0 && err != nil || !bytes.Equal(b[:n], none[:n]) {
			return false
		}
		at += int64(n)
	}
	return ctx.Err() == nil
}
