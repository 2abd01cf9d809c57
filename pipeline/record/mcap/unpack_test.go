// SPDX-License-Identifier: Apache-2.0

package mcap

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"testing"

	foxglove "github.com/foxglove/mcap/go/mcap"
	"github.com/klauspost/compress/zstd"
)

// foreign returns a file of n messages, of 0 to n-1 bytes, written by the format's own writer.
func foreign(t testing.TB, c foxglove.CompressionFormat, n int) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := foxglove.NewWriter(&out, &foxglove.WriterOptions{Chunked: true, ChunkSize: 1000, IncludeCRC: true, Compression: c})
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		w.WriteHeader(&foxglove.Header{Profile: "p", Library: "l"}), w.WriteSchema(&foxglove.Schema{ID: 1, Name: "n", Encoding: "e", Data: []byte("d")}),
		w.WriteChannel(&foxglove.Channel{ID: 7, SchemaID: 1, Topic: "/t", MessageEncoding: "json"}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for n := range n {
		if err := w.WriteMessage(&foxglove.Message{ChannelID: 7, Sequence: uint32(n), LogTime: uint64(n), Data: bytes.Repeat([]byte{byte(n)}, n)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestFilesOfOthersAreRead reads files of the format's own writer, by their index and without it.
func TestFilesOfOthersAreRead(t *testing.T) {
	for _, c := range []foxglove.CompressionFormat{foxglove.CompressionNone, foxglove.CompressionLZ4, foxglove.CompressionZSTD} {
		b := foreign(t, c, 100)
		for _, size := range []int{len(b), len(b) - 1} {
			f := openBytes(t, b[:size])
			if f.Finished != (size == len(b)) || f.Trouble != nil || f.Profile != "p" || len(f.Chunks) < 2 {
				t.Fatalf("%q: %+v", c, f)
			}
			n := 0
			for i := range f.Chunks {
				if checked, err := f.VerifyChunk(i); !checked || err != nil {
					t.Fatalf("%q, chunk %d: %t, %v", c, i, checked, err)
				}
				list, err := f.Messages(i)
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range list {
					data, err := f.Read(m)
					if err != nil || !bytes.Equal(data, bytes.Repeat([]byte{byte(n)}, n)) || m.Sequence != uint32(n) || m.Compressed() != (c != "") {
						t.Fatalf("%q, message %d: %+v, %v", c, n, m, err)
					}
					n++
				}
			}
			if n != 100 || f.Channels[7].Topic != "/t" {
				t.Errorf("%q: %d messages, channels %+v", c, n, f.Channels)
			}
		}
	}
}

// TestAFlippedByteOfACompressedChunkIsNoticed checks that no message has other bytes, and that the error is damage.
func TestAFlippedByteOfACompressedChunkIsNoticed(t *testing.T) {
	for _, c := range []foxglove.CompressionFormat{foxglove.CompressionLZ4, foxglove.CompressionZSTD} {
		b := foreign(t, c, 40)
		f := openBytes(t, b)
		chunk := f.Chunks[0]
		list, err := f.Messages(0) // which reads the chunk's header
		if err != nil {
			t.Fatal(err)
		}
		whole := len(list)
		for at := f.Chunks[0].records; at < chunk.Offset+chunk.Length; at++ {
			b[at] ^= 0x55
			spoiled := openBytes(t, b)
			list, err := spoiled.Messages(0)
			if err != nil && !errors.Is(err, ErrDamaged) || err == nil && len(list) != whole { // some bits of lz4 mean nothing
				t.Fatalf("%s, byte %d: %d messages, %v", c, at, len(list), err)
			}
			for n, m := range list {
				if data, err := spoiled.Read(m); err != nil || !bytes.Equal(data, bytes.Repeat([]byte{byte(n)}, n)) {
					t.Fatalf("%s, byte %d: message %d: %x, %v", c, at, n, data, err)
				}
			}
			b[at] ^= 0x55
		}
	}
}

// packed returns a file with one chunk that states a CRC and size bytes of records.
func packed(compression string, size uint64, crc uint32, data []byte) []byte {
	b, at := beginRecord(AppendHeader([]byte(Magic), "", ""), OpChunk)
	b = le.AppendUint64(le.AppendUint64(le.AppendUint64(b, 0), 0), size)
	b = text(le.AppendUint32(b, crc), compression)
	return endRecord(append(le.AppendUint64(b, uint64(len(data))), data...), at)
}

// TestCompressedChunksThatLie checks chunks that state other sizes than they have, or an unknown compression: they are
// refused by name, and cost no more memory than they state and may have.
func TestCompressedChunksThatLie(t *testing.T) {
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	bomb := z.EncodeAll(make([]byte, 60<<20), nil)
	for _, test := range []struct {
		compression string
		size        uint64
		kind        error
		text        string
		most        uint64 // bytes of memory
	}{
		{"zstd", 1000, ErrDamaged, "other than 1000 bytes", 40 << 20},
		{"zstd", 1 << 20, ErrDamaged, "other than", 40 << 20},
		{"zstd", 1 << 50, ErrCompressed, "at most", 1 << 20},
		{"lz4", 60 << 20, ErrDamaged, "lz4", 20 << 20},
		{"bz2", 1000, ErrCompressed, `with "bz2": write the file with`, 1 << 20},
	} {
		f := openBytes(t, packed(test.compression, test.size, 0, bomb))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := f.Messages(0)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, test.kind) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%+v: %v", test, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > test.most {
			t.Errorf("%+v: %d bytes of memory", test, n)
		}
	}
	f := openBytes(t, packed("zstd", 9, 1, z.EncodeAll(AppendPadding(nil, 9), nil)))
	if _, err := f.Messages(0); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "should have 0x1") {
		t.Errorf("a wrong CRC: %v", err)
	}
}
