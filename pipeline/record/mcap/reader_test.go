// SPDX-License-Identifier: Apache-2.0

package mcap

import (
	"bytes"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	foxglove "github.com/foxglove/mcap/go/mcap"
)

func openBytes(t testing.TB, b []byte) *File {
	t.Helper()
	f, err := Open(t.Context(), bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// contents compares a file with what sample wrote; it may contain only the first frames.
func contents(t *testing.T, f *File, bodies [][]byte) {
	t.Helper()
	for i := range f.Chunks {
		if checked, err := f.VerifyChunk(i); !checked || err != nil {
			t.Fatalf("chunk %d: %t, %v", i, checked, err)
		}
		list, err := f.Messages(i)
		if err != nil || len(list) != 2 || list[0].Channel != 1 || list[1].Channel != 2 || list[0].Log != uint64(1000+i) {
			t.Fatalf("chunk %d: %+v, %v", i, list, err)
		}
		got, err := f.Read(list[0])
		if err != nil || !bytes.Equal(got, append([]byte("prefix"), bodies[i]...)) {
			t.Fatalf("chunk %d differs: %v", i, err)
		}
		if got, err = f.Read(list[1]); err != nil || string(got) != `{"lost":0}` {
			t.Fatalf("chunk %d: %q, %v", i, got, err)
		}
	}
	if f.Profile != "ros2" || f.Library != "tegracast" || f.Metadata["tegracast"]["sensor"] != "rggb10" ||
		f.Channels[1].Metadata["bits"] != "10" || f.Schemas[1].Encoding != "ros2msg" {
		t.Errorf("%+v", f)
	}
	if len(f.Attachments) != 1 {
		t.Fatalf("%+v", f.Attachments)
	}
	if b, err := f.ReadAttachment(0); err != nil || string(b) != "sources: []\n" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestAFileIsReadByItsIndexAndWithoutIt(t *testing.T) {
	for _, size := range []int{0, 1, 4095, 4096, 100_000} {
		b, bodies := sample(t, 12, size)
		f := openBytes(t, b)
		if !f.Finished || f.Trouble != nil || len(f.Chunks) != 12 || f.End != int64(len(b)) {
			t.Fatalf("%+v", f)
		}
		contents(t, f, bodies)
		f = openBytes(t, b[:len(b)-1]) // without the end of its end
		if f.Finished || f.Trouble != nil || len(f.Chunks) != 12 {
			t.Fatalf("unfinished: %+v", f)
		}
		contents(t, f, bodies)
	}
}

// TestAFileIsReadToItsLastWholeChunk tests files truncated anywhere.
func TestAFileIsReadToItsLastWholeChunk(t *testing.T) {
	b, bodies := sample(t, 5, 5000)
	whole := 0
	for cut := 2 * page; cut < len(b); cut += 97 {
		f := openBytes(t, b[:cut])
		if f.Finished || f.End > int64(cut) {
			t.Fatalf("cut at %d: %+v", cut, f)
		}
		contents(t, f, bodies)
		if len(f.Chunks) < whole || len(f.Chunks) > whole+1 {
			t.Fatalf("cut at %d: %d chunks after %d", cut, len(f.Chunks), whole)
		}
		whole = len(f.Chunks)
	}
	if whole != 5 {
		t.Errorf("%d chunks", whole)
	}
}

// TestEveryFlippedByteIsNoticed checks that there is no crash, and that a chunk with different bytes is not accepted as
// intact.
func TestEveryFlippedByteIsNoticed(t *testing.T) {
	b, bodies := sample(t, 3, 2000)
	for at := range b {
		b[at] ^= 0x55
		f, err := Open(t.Context(), bytes.NewReader(b), int64(len(b)))
		if err != nil {
			if !errors.Is(err, ErrNotMCAP) || at >= len(Magic) {
				t.Fatalf("byte %d: %v", at, err)
			}
			b[at] ^= 0x55
			continue
		}
		for i := range f.Chunks {
			if checked, err := f.VerifyChunk(i); err != nil || !checked {
				continue
			}
			list, err := f.Messages(i)
			if err != nil || len(list) == 0 || list[0].Channel != 1 {
				continue
			}
			data, err := f.Read(list[0])
			if n := int(list[0].Sequence); err == nil && n < 3 && !bytes.Equal(data, append([]byte("prefix"), bodies[n]...)) {
				t.Fatalf("byte %d: a chunk with the right CRC has a wrong frame", at)
			}
		}
		b[at] ^= 0x55
	}
}

// TestASpanIsSummed compares the CRC-32C of parts of chunks, which begin or end inside or outside them.
func TestASpanIsSummed(t *testing.T) {
	b, _ := sample(t, 2, 50_000)
	f := openBytes(t, b)
	table := crc32.MakeTable(crc32.Castagnoli)
	for i := range f.Chunks {
		c, err := f.chunk(i)
		if err != nil {
			t.Fatal(err)
		}
		begin, end := c.records, c.records+int64(c.Size)
		for _, s := range []Span{
			{Offset: begin, Size: end - begin},
			{Offset: begin + 1, Size: 40_000},
			{Offset: begin + sumPiece, Size: sumPiece},
			{Offset: begin + 100},
			{Offset: begin - 10, Size: 20},
			{Offset: end - 10, Size: 20},
			{Offset: end, Size: 20},
			{Size: 3},
		} {
			from, to := max(s.Offset, begin), min(s.Offset+s.Size, end)
			want := s
			if from < to {
				want.Seen, want.Sum = to-from, crc32.Checksum(b[from:to], table)
			}
			if checked, err := f.VerifySpan(i, &s); s != want || !checked || err != nil {
				t.Errorf("chunk %d: %+v, want %+v: %t, %v", i, s, want, checked, err)
			}
		}
	}
}

func FuzzOpen(f *testing.F) {
	b, _ := sample(f, 2, 100)
	f.Add(b)
	f.Add(b[:len(b)-1])
	f.Add(b[:page+100])
	for _, c := range []foxglove.CompressionFormat{foxglove.CompressionLZ4, foxglove.CompressionZSTD} {
		f.Add(foreign(f, c, 2))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := Open(t.Context(), bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		for i := range file.Chunks {
			list, _ := file.Messages(i)
			_, whole := file.VerifyChunk(i)
			for _, m := range list {
				data, err := file.Read(m)
				if err == nil && int64(len(data)) != m.Size {
					t.Errorf("message %+v has %d bytes", m, len(data))
				}
				if _, again := file.VerifyRead(i, data, m.Offset); err == nil && (again == nil) != (whole == nil) {
					t.Errorf("chunk %d: %v, and read in part %v", i, whole, again)
				}
			}
		}
		for i := range file.Attachments {
			_, _ = file.ReadAttachment(i)
		}
	})
}

// TestZerosAreTheEnd checks that zeros at the end of an unfinished file, whose space was allocated but not written, are
// accepted. Elsewhere they count as damage.
func TestZerosAreTheEnd(t *testing.T) {
	b, bodies := sample(t, 3, 5000)
	b = b[:len(b)-1]
	whole := openBytes(t, b)
	for _, zeros := range []int{1, 8, 9, 4096, 5<<20 + 1} {
		cut := append(bytes.Clone(b[:whole.End]), make([]byte, zeros)...)
		f := openBytes(t, cut)
		if f.Finished || f.Trouble != nil || f.End != whole.End || len(f.Chunks) != 3 {
			t.Errorf("%d zeros: %+v", zeros, f)
		}
		contents(t, f, bodies)
		cut[len(cut)-1] = 1
		if f = openBytes(t, cut); zeros > recordHead && (!errors.Is(f.Trouble, ErrDamaged) || f.End != whole.End) {
			t.Errorf("%d bytes, of which the last is no zero: %+v", zeros, f)
		}
	}
}

// TestAHoleIsSkipped checks that a frame whose header is missing or damaged is reported, and does not affect others.
func TestAHoleIsSkipped(t *testing.T) {
	b, _ := sample(t, 12, 20_000)
	b = b[:len(b)-1] // without an end
	whole := openBytes(t, b)
	for what, spoil := range map[string]func(head []byte){
		"zeros":       func(head []byte) { clear(head) },
		"a length":    func(head []byte) { head[3] ^= 1 },
		"a large one": func(head []byte) { head[7] ^= 1 },
		"an opcode":   func(head []byte) { head[0] = 0 },
	} {
		bad := bytes.Clone(b)
		for _, n := range []int{3, 4, 8} {
			spoil(bad[whole.Chunks[n].Offset:][:page])
		}
		f := openBytes(t, bad)
		if f.Finished || !errors.Is(f.Trouble, ErrDamaged) || !strings.Contains(f.Trouble.Error(), "bytes are skipped") || f.End != whole.End {
			t.Errorf("%s: %+v", what, f)
		}
		got := map[int64]bool{}
		for i, c := range f.Chunks {
			if _, err := f.VerifyChunk(i); err == nil {
				got[c.Offset] = true
			}
		}
		for n, c := range whole.Chunks {
			if got[c.Offset] == (n == 3 || n == 4 || n == 8) {
				t.Errorf("%s: chunk %d is there: %t", what, n, got[c.Offset])
			}
		}
	}
}

// holes is a file of records, of which each may end with zeros that have no place on the disk.
func holes(t *testing.T, records ...record) (*os.File, int64) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "holes.mcap"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	at := int64(len(Magic))
	_, err = f.WriteAt([]byte(Magic), 0)
	for _, r := range records {
		head := le.AppendUint64([]byte{byte(r.op)}, uint64(int64(len(r.content))+r.zeros))
		_, werr := f.WriteAt(append(head, r.content...), at)
		err = errors.Join(err, werr)
		at += int64(len(head)+len(r.content)) + r.zeros
	}
	if err = errors.Join(err, f.Truncate(at)); err != nil {
		t.Fatal(err)
	}
	return f, at
}

type record struct {
	op      Opcode
	content []byte
	zeros   int64
}

// TestWhatIsKeptIsBounded: a file that costs its maker nothing costs its reader little.
func TestWhatIsKeptIsBounded(t *testing.T) {
	const large = 20 << 20
	schema := func(id uint16) record {
		return record{OpSchema, le.AppendUint32(text(text(le.AppendUint16(nil, id), "n"), "e"), large), large}
	}
	channel := func(id uint16) record {
		b := text(text(le.AppendUint16(le.AppendUint16(nil, id), 1), "t"), "e")
		return record{OpChannel, le.AppendUint32(text(le.AppendUint32(b, large+4+1+4), "k"), large), large}
	}
	metadata := func(id uint16) record {
		return record{OpMetadata, le.AppendUint32(text(le.AppendUint32(text(nil, string(rune('a'+id))), large+4+1+4), "k"), large), large}
	}
	var many []byte
	for i := range uint32(maxTexts + 1) {
		many = text(text(many, string(le.AppendUint32(nil, i))), "")
	}
	var small []record
	for i := range maxKept / entry {
		small = append(small, record{OpMetadata, le.AppendUint32(text(nil, string(le.AppendUint32(nil, uint32(i)))), 0), 0})
	}
	for name, tt := range map[string]struct {
		records []record
		kept    bool
	}{
		"schemas":            {[]record{schema(1), schema(2), schema(3), schema(4)}, false},
		"a schema again":     {[]record{schema(1), schema(1), schema(1), schema(1)}, true},
		"channels":           {[]record{channel(1), channel(2), channel(3), channel(4)}, false},
		"metadata":           {[]record{metadata(1), metadata(2), metadata(3), metadata(4)}, false},
		"metadata again":     {[]record{metadata(1), metadata(2), metadata(1), metadata(2)}, true},
		"all":                {[]record{schema(1), channel(1), metadata(1), metadata(2)}, false},
		"many texts":         {[]record{{OpMetadata, append(le.AppendUint32(text(nil, "n"), uint32(len(many))), many...), 0}}, false},
		"many small records": {small, false},
	} {
		in, size := holes(t, tt.records...)
		f, err := Open(t.Context(), in, size)
		if err != nil {
			t.Fatal(err)
		}
		if f.kept > maxKept || tt.kept != (f.Trouble == nil) || !tt.kept && !errors.Is(f.Trouble, ErrDamaged) {
			t.Errorf("%s: %d bytes are kept, %v", name, f.kept, f.Trouble)
		}
	}
}
