// SPDX-License-Identifier: Apache-2.0

package mcap

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"hash/crc32"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// A variant is one of the files of MCAP's conformance suite (tests/conformance/data in its repository): its contents
// and its features: ch chunks, mx message index, chx chunk index, ax attachment index, mdx metadata index, rsh and rch
// schemas and channels in the summary, st statistics, sum summary offsets, pad bytes after each record's fields that a
// reader must skip.
type variant struct {
	name     string
	features map[string]bool

	schema   *Schema
	channel  *Channel
	messages []Part
	attached *Attachment
	metadata map[string]string
}

func variantOf(name string) *variant {
	parts := strings.Split(name, "-")
	v := &variant{name: name, features: map[string]bool{}}
	for _, f := range parts[1:] {
		v.features[f] = true
	}
	data := []byte{1, 2, 3}
	one := []Part{{Message{Channel: 1, Sequence: 10, Log: 2, Publish: 1}, data}}
	withSchema := func() {
		v.schema = &Schema{ID: 1, Name: "Example", Encoding: "c", Data: []byte{4, 5, 6}}
		v.channel = &Channel{ID: 1, Schema: 1, Topic: "example", Encoding: "a", Metadata: map[string]string{"foo": "bar"}}
	}
	switch parts[0] {
	case "OneMessage":
		withSchema()
		v.messages = one
	case "OneSchemalessMessage":
		v.channel = &Channel{ID: 1, Topic: "example", Encoding: "text"}
		v.messages = one
	case "TenMessages":
		withSchema()
		for i, log := range []uint64{0, 2, 1, 3, 3, 5, 4, 7, 8, 9} {
			v.messages = append(v.messages, Part{Message{Channel: 1, Sequence: uint32(i), Log: log, Publish: log}, data})
		}
	case "OneAttachment":
		v.attached = &Attachment{Log: 2, Created: 1, Name: "myFile", Media: "application/octet-stream", Data: data}
	case "OneMetadata":
		v.metadata = map[string]string{"foo": "bar"}
	}
	return v
}

// pad appends the record in b from at on to what precedes it, with bytes that readers skip if the variant has them.
func (v *variant) pad(b []byte, at int) []byte {
	if !v.features["pad"] || len(b) == at {
		return b
	}
	return endRecord(append(b, 1, 0xff, 0xff), at)
}

// file builds the variant with the package's own records.
func (v *variant) file() []byte {
	b := v.pad(AppendHeader([]byte(Magic), "", ""), len(Magic))
	w := &Writer{}
	if v.schema != nil {
		w.schemas = append(w.schemas, *v.schema)
	}
	if v.channel != nil {
		w.channels = append(w.channels, *v.channel)
	}
	if at := len(b); v.attached != nil {
		w.Offset = uint64(at)
		b = v.pad(w.AppendAttachment(b, *v.attached), at)
		w.attached[0].length = uint64(len(b) - at)
	}
	if at := len(b); v.metadata != nil {
		w.Offset = uint64(at)
		b = v.pad(w.AppendMetadata(b, "myMetadata", v.metadata), at)
		w.metadata[0].length = uint64(len(b) - at)
	}
	b = v.data(b, w)
	b, at := beginRecord(b, OpDataEnd)
	b = endRecord(le.AppendUint32(b, crc32.ChecksumIEEE(b[:at])), at)
	return v.summary(b, w)
}

// data appends schema, channel and messages, either in a chunk or directly.
func (v *variant) data(b []byte, w *Writer) []byte {
	var records []byte
	pad := v.pad
	if v.features["ch"] { // within chunks nothing is padded
		pad = func(b []byte, _ int) []byte { return b }
	}
	if v.schema != nil {
		records = pad(v.schema.append(records), 0)
	}
	if at := len(records); v.channel != nil {
		records = pad(v.channel.append(records), at)
	}
	index := map[uint16][]messageAt{}
	chunk := chunkIndex{at: uint64(len(b))}
	for i, m := range v.messages {
		index[m.Channel] = append(index[m.Channel], messageAt{m.Log, uint64(len(records))})
		records = append(m.appendHead(records, len(m.Data)), m.Data...)
		if i == 0 {
			chunk.first = m.Log
		}
		chunk.first, chunk.last = min(chunk.first, m.Log), max(chunk.last, m.Log)
	}
	if v.channel == nil {
		return append(b, records...)
	}
	if !v.features["ch"] { // statistics count its messages; summary omits the chunk
		w.appendIndexes(nil, &chunk, index)
		return append(b, records...)
	}
	chunk.size = uint64(len(records))
	head := make([]byte, chunkHead)
	chunk.writeHeader(head, crc32.ChecksumIEEE(records))
	b = append(append(b, head...), records...)
	at, indexes := len(b), w.appendIndexes(nil, &chunk, index)
	if v.features["mx"] {
		b = v.pad(append(b, indexes...), at)
	}
	w.chunks[0].indexLength = uint64(len(b) - at)
	return b
}

// summary appends the rest of the file.
func (v *variant) summary(b []byte, w *Writer) []byte {
	start, groups := len(b), w.groups()
	var offsets []byte
	for _, g := range []struct {
		op      Opcode
		feature string
	}{{OpSchema, "rsh"}, {OpChannel, "rch"}, {OpStatistics, "st"}, {OpMetadataIndex, "mdx"}, {OpAttachmentIndex, "ax"}, {OpChunkIndex, "chx"}} {
		i := slices.IndexFunc(groups, func(x group) bool { return x.op == g.op })
		if g.op == OpChunkIndex && !v.features["mx"] && len(w.chunks) > 0 {
			w.chunks[0].indexes = nil
		}
		if at := len(b); v.features[g.feature] {
			b = groups[i].append(b)
			if g.op == OpStatistics && !v.features["ch"] {
				le.PutUint32(b[at+recordHead+8+2+3*4:], 0) // number of chunks
			}
			b = v.pad(b, at)
			from := len(offsets)
			offsets, _ = beginRecord(offsets, OpSummaryOffset)
			offsets = append(offsets, byte(g.op))
			offsets = v.pad(endRecord(le.AppendUint64(le.AppendUint64(offsets, uint64(at)), uint64(len(b)-at)), from), from)
		}
	}
	summary, behind := start, 0
	if len(b) == start {
		summary = 0
	}
	if v.features["sum"] {
		behind = len(b)
		b = append(b, offsets...)
	}
	b, at := beginRecord(b, OpFooter)
	b = le.AppendUint64(le.AppendUint64(b, uint64(summary)), uint64(behind))
	le.PutUint64(b[at+1:], 8+8+4)
	return append(le.AppendUint32(b, crc32.ChecksumIEEE(b[start:])), Magic...)
}

// suite returns the suite's files with their SHA-256, as in its repository (Git LFS).
func suite(t *testing.T) map[string]string {
	t.Helper()
	b, err := os.ReadFile("testdata/conformance.sha256")
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]string{}
	for line := range strings.Lines(string(b)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		sums[name] = sum
	}
	if len(sums) != 416 {
		t.Fatalf("%d files", len(sums))
	}
	return sums
}

// TestConformance checks that the package produces each file of MCAP's conformance suite byte for byte, and reads each.
func TestConformance(t *testing.T) {
	for name, want := range suite(t) {
		v := variantOf(name)
		b := v.file()
		if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s: the records are not those of the suite: %d bytes", name, len(b))
			continue
		}
		v.check(t, openBytes(t, b))
		v.check(t, openBytes(t, b[:len(b)-1])) // without its end
	}
}

// check compares a file's contents with the variant.
func (v *variant) check(t *testing.T, f *File) {
	t.Helper()
	var got []Part
	for i := range f.Chunks {
		if checked, err := f.VerifyChunk(i); err != nil || checked != v.features["ch"] {
			t.Errorf("%s: chunk %d: checked %t, %v", v.name, i, checked, err)
		}
		list, err := f.Messages(i)
		if err != nil {
			t.Errorf("%s: %v", v.name, err)
		}
		for _, m := range list {
			data, err := f.Read(m)
			if err != nil {
				t.Errorf("%s: %v", v.name, err)
			}
			got = append(got, Part{m.Message, data})
		}
	}
	same := slices.EqualFunc(got, v.messages, func(a, b Part) bool { return a.Message == b.Message && bytes.Equal(a.Data, b.Data) })
	if !same || f.Trouble != nil {
		t.Errorf("%s: messages %+v, trouble %v", v.name, got, f.Trouble)
	}
	if v.channel != nil {
		c := f.Channels[1]
		if c.Topic != v.channel.Topic || c.Encoding != v.channel.Encoding || c.Schema != v.channel.Schema || !maps.Equal(c.Metadata, v.channel.Metadata) {
			t.Errorf("%s: channel %+v", v.name, c)
		}
	}
	if v.schema != nil && f.Schemas[1].Name != "Example" {
		t.Errorf("%s: schemas %+v", v.name, f.Schemas)
	}
	if v.metadata != nil && !maps.Equal(f.Metadata["myMetadata"], v.metadata) {
		t.Errorf("%s: metadata %+v", v.name, f.Metadata)
	}
	if v.attached != nil {
		b, err := f.ReadAttachment(0)
		if err != nil || !bytes.Equal(b, v.attached.Data) || f.Attachments[0].Name != v.attached.Name || f.Attachments[0].Created != 1 {
			t.Errorf("%s: attachments %+v: %v", v.name, f.Attachments, err)
		}
	}
}

// TestTheWriterConforms checks the variants that a Writer can write, with messages only in its own chunks and a
// complete summary, against the suite, except for the CRC of the data section, which it omits.
func TestTheWriterConforms(t *testing.T) {
	for _, name := range []string{"NoData-st-sum", "OneAttachment-ax-st-sum", "OneMetadata-mdx-st-sum"} {
		v := variantOf(name)
		want := v.file()
		w, b, err := NewWriter("", "", 1, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if v.attached != nil {
			b = w.AppendAttachment(b, *v.attached)
		}
		if v.metadata != nil {
			b = w.AppendMetadata(b, "myMetadata", v.metadata)
		}
		crc := len(b) + recordHead
		b = w.End(b)
		clear(want[crc : crc+4])
		if !bytes.Equal(b, want) {
			t.Errorf("%s:\n%x\n%x", name, b, want)
		}
	}
}
