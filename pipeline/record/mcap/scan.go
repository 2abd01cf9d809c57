// SPDX-License-Identifier: Apache-2.0

package mcap

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// scan reads records from the beginning, as far as they are whole, and goes on behind what is not.
func (f *File) scan() error {
	for f.End = int64(len(Magic)); f.End < f.size; {
		h, err := f.head(f.End)
		if err == nil {
			if h.op == OpDataEnd || h.op == OpFooter {
				return nil
			}
			if err = f.take(h, f.End); err == nil {
				f.End += recordHead + h.length
				continue
			}
		}
		cut := errors.Is(err, io.ErrUnexpectedEOF)
		if !cut && !errors.Is(err, ErrDamaged) {
			return err
		}
		if !cut && f.zeros(f.End) { // its place was taken, and it was not written
			return nil
		}
		next := f.resume(f.End)
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

// damaged notes the first places of the file that are damaged.
func (f *File) damaged(err error, next int64) {
	if f.skipped++; f.skipped > maxSkipped {
		return
	}
	err = fmt.Errorf("at byte %d: %w", f.End, err)
	if next > 0 {
		err = fmt.Errorf("%w: %w: %d bytes are skipped", ErrDamaged, err, next-f.End)
	}
	f.Trouble = errors.Join(f.Trouble, err)
}

const (
	maxSkipped = 10      // places that are noted
	maxGap     = 1 << 30 // bytes that are skipped at a time: a chunk is not so long
	chunkUnit  = 4096    // chunks that Writer.Frame makes begin at its multiples
)

// resume finds the next chunk with its index behind byte at; 0: there is none.
func (f *File) resume(at int64) int64 {
	end := min(f.size, at+maxGap)
	at = (at/chunkUnit + 1) * chunkUnit
	for b := make([]byte, max(0, min(1<<20, end-at))); at < end; at += int64(len(b)) {
		n, _ := f.r.ReadAt(b[:min(int64(len(b)), end-at)], at) // what cannot be read is skipped, too
		for i := 0; i < n; i += chunkUnit {
			if Opcode(b[i]) == OpChunk && f.isChunk(at+int64(i)) {
				return at + int64(i)
			}
		}
	}
	return 0
}

// isChunk says whether there is a chunk with an index at byte at.
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

// maxZeros is how many zeros at the end of a file are taken for one that was not written to its end.
const maxZeros = 1 << 30

// zeros says whether there is nothing else from byte at to the end.
func (f *File) zeros(at int64) bool {
	if f.size-at > maxZeros {
		return false
	}
	for b, none := make([]byte, 64<<10), make([]byte, 64<<10); at < f.size; {
		n, err := f.r.ReadAt(b[:min(int64(len(b)), f.size-at)], at)
		if n == 0 && err != nil || !bytes.Equal(b[:n], none[:n]) {
			return false
		}
		at += int64(n)
	}
	return true
}
