// SPDX-License-Identifier: Apache-2.0

package mcap

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

const (
	// maxUnpacked is the maximum size of a compressed chunk's records in bytes. Writers make chunks of a few MiB, or of
	// one message.
	maxUnpacked = 256 << 20
	// likelyRatio is the ratio of decompressed to compressed size up to which memory is allocated before decompression
	// shows whether a chunk has as many bytes as it states.
	likelyRatio = 16
	maxWindow   = 64 << 20 // maximum size of a zstd window in bytes
)

// unpacked is the compressed chunk that was decompressed last.
type unpacked struct {
	chunk   int    // its number + 1; 0: none
	records []byte // its records, decompressed; they match the chunk's CRC if it has one
}

// unpack returns the records of compressed chunk i, which is c, after checking their CRC, if there is one. They are
// valid until the next call for another chunk. Errors wrap ErrDamaged or ErrCompressed, or are the file's.
func (f *File) unpack(i int, c *Chunk) ([]byte, error) {
	if f.unpacked.chunk == i+1 {
		return f.unpacked.records, nil
	}
	if c.Size > maxUnpacked {
		return nil, fmt.Errorf("%w: chunk %d has %d bytes with %s, at most %d are decompressed", ErrCompressed, i, c.Size, c.Compression, maxUnpacked)
	}
	f.unpacked.chunk = 0 // its memory is used again
	in := &source{r: io.NewSectionReader(f.r, c.records, c.Offset+c.Length-c.records)}
	b, err := decompress(in, c, f.unpacked.records[:0])
	f.unpacked.records = b
	switch {
	case errors.Is(err, ErrCompressed):
		return nil, fmt.Errorf("%w: chunk %d, with %q: write the file with lz4, zstd or without compression", err, i, c.Compression)
	case in.failed != nil:
		return nil, in.failed
	case err != nil:
		return nil, fmt.Errorf("%w: chunk %d, of times %d to %d, with %s: %w", ErrDamaged, i, c.First, c.Last, c.Compression, err)
	case uint64(len(b)) != c.Size:
		return nil, fmt.Errorf("%w: chunk %d has other than %d bytes when decompressed", ErrDamaged, i, c.Size)
	}
	if got := crc32.ChecksumIEEE(b); c.CRC != 0 && got != c.CRC {
		return nil, fmt.Errorf("%w: chunk %d, of times %d to %d: its %d bytes have CRC %#x and should have %#x",
			ErrDamaged, i, c.First, c.Last, len(b), got, c.CRC)
	}
	f.unpacked.chunk = i + 1
	return b, nil
}

// decompress returns the decompressed records of a chunk, at most one byte more than the chunk states. It uses the
// memory of b, which must be empty, if its capacity suffices.
func decompress(in *source, c *Chunk, b []byte) ([]byte, error) {
	var out io.Reader
	switch c.Compression {
	case "lz4":
		out = lz4.NewReader(in)
	case "zstd":
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
		defer z.Close()
		out = z
	default:
		return nil, ErrCompressed
	}
	packed := uint64(c.Offset + c.Length - c.records)
	if need := int(min(c.Size, likelyRatio*packed)) + bytes.MinRead; cap(b) < need {
		b = make([]byte, 0, need)
	}
	whole := bytes.NewBuffer(b)
	_, err := whole.ReadFrom(io.LimitReader(out, int64(c.Size)+1))
	return whole.Bytes(), err
}

// source reads a compressed chunk, and keeps the file's error, which is not damage.
type source struct {
	r      io.Reader
	failed error
}

// Read implements io.Reader.
func (s *source) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		s.failed = err
	}
	return n, err
}

// contents returns the file that has the records of chunk i, and the offsets in it at which they begin and end
// (exclusive). The records of a compressed chunk are a file in memory.
func (f *File) contents(i int) (in *File, at, end int64, err error) {
	c, err := f.chunk(i)
	if err != nil {
		return nil, 0, 0, err
	}
	if c.Compression == "" {
		return f, c.records, c.Offset + c.Length, nil
	}
	b, err := f.unpack(i, c)
	in = &File{r: bytes.NewReader(b), size: int64(len(b)), Schemas: f.Schemas, Channels: f.Channels, kept: f.kept}
	return in, 0, in.size, err
}
