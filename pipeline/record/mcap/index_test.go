// SPDX-License-Identifier: Apache-2.0

package mcap

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"testing"
)

// counted is a file that counts the bytes read from it.
type counted struct {
	io.ReaderAt
	bytes int64
}

// ReadAt implements io.ReaderAt.
func (c *counted) ReadAt(b []byte, at int64) (int, error) {
	c.bytes += int64(len(b))
	return c.ReaderAt.ReadAt(b, at)
}

// named returns a file whose summary names many records of 1 MiB, at offsets step bytes apart.
func named(t testing.TB, count, step int, append func(w *Writer, at uint64)) []byte {
	t.Helper()
	w, b, err := NewWriter("", "", page, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	at := w.Offset
	text := make([]byte, 1<<20)
	for i := range text {
		text[i] = byte(OpMetadata) // so that each byte looks like the opcode of a metadata record
	}
	m := w.AppendMetadata(nil, "name", map[string]string{"x": string(text)})
	b = slices.Concat(b, m)
	w.metadata = nil
	for i := range count {
		append(w, at+uint64(i*step))
	}
	return w.End(b)
}

// TestASmallIndexCannotReadALot checks that a summary that names one record repeatedly, or chunks with more bytes than
// the file has, is reported as damaged, and that no more than a few times the file's size is read.
func TestASmallIndexCannotReadALot(t *testing.T) {
	metadata := func(w *Writer, at uint64) { w.metadata = append(w.metadata, metadataIndex{at: at, length: 1 << 20}) }
	attachment := func(w *Writer, at uint64) { w.attached = append(w.attached, attachmentIndex{at: at, length: 1 << 20}) }
	chunk := func(w *Writer, at uint64) { w.chunks = append(w.chunks, chunkIndex{at: at, length: 1 << 20}) }
	for name, b := range map[string][]byte{
		"metadata again": named(t, 1000, 0, metadata), "metadata as an attachment": named(t, 1000, 0, attachment),
		"a chunk again": named(t, 1000, 0, chunk), "chunks within another": named(t, 1000, 1, chunk),
	} {
		r := &counted{ReaderAt: bytes.NewReader(b)}
		f, err := Open(t.Context(), r, int64(len(b)))
		if err != nil {
			t.Fatal(name, err)
		}
		if !errors.Is(f.Trouble, ErrDamaged) || len(f.Chunks) > 1 {
			t.Errorf("%s: %v, %d chunks", name, f.Trouble, len(f.Chunks))
		}
		if r.bytes > 4*int64(len(b)) {
			t.Errorf("%s: %d bytes are read of a file of %d", name, r.bytes, len(b))
		}
	}
}

// TestOpenEnds checks that opening a file ends soon after the context has ended.
func TestOpenEnds(t *testing.T) {
	b, _ := sample(t, 100, 100)
	for _, b := range [][]byte{b, b[:len(b)-1]} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := &counted{ReaderAt: bytes.NewReader(b)}
		if _, err := Open(ctx, r, int64(len(b))); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		if r.bytes > int64(len(b))/4 {
			t.Errorf("%d bytes are read of a file of %d", r.bytes, len(b))
		}
	}
}
