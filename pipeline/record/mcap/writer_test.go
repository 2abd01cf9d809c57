// SPDX-License-Identifier: Apache-2.0

package mcap

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"testing"

	foxglove "github.com/foxglove/mcap/go/mcap"
)

const page = 4096

// sample returns a file with the given number of frames of size bytes each, with a small message after each.
func sample(t testing.TB, frames, size int) (file []byte, bodies [][]byte) {
	t.Helper()
	schemas := []Schema{
		{ID: 1, Name: "sensor_msgs/msg/Image", Encoding: "ros2msg", Data: []byte("uint8[] data")},
		{ID: 2, Name: "books", Encoding: "jsonschema", Data: []byte(`{"type":"object"}`)},
	}
	channels := []Channel{
		{ID: 1, Schema: 1, Topic: "/camera", Encoding: "cdr", Metadata: map[string]string{"bits": "10", "a": "b"}},
		{ID: 2, Schema: 2, Topic: "/books", Encoding: "json"},
		{ID: 3, Topic: "/none", Encoding: "json"},
	}
	w, file, err := NewWriter("ros2", "tegracast", page, schemas, channels)
	if err != nil {
		t.Fatal(err)
	}
	file = w.AppendMetadata(file, "tegracast", map[string]string{"sensor": "rggb10"})
	file = w.AppendAttachment(file, Attachment{Log: 1, Created: 2, Name: "tegracast.yaml", Media: "application/yaml", Data: []byte("sources: []\n")})
	file = w.Pad(file, page)
	for n := range frames {
		body := bytes.Repeat([]byte{byte(n), byte(n >> 8), 7}, size/3+1)[:size]
		bodies = append(bodies, body)
		log := uint64(1000 + n)
		small := []Part{{Message{Channel: 2, Sequence: uint32(n), Log: log + 5, Publish: log}, []byte(`{"lost":0}`)}}
		head, tail, whole, err := w.Frame(nil, nil, page, Message{Channel: 1, Sequence: uint32(n), Log: log, Publish: log}, []byte("prefix"), body, small)
		if err != nil {
			t.Fatal(err)
		}
		if len(file)%page != 0 || len(head) != page || whole%page != 0 || len(tail)%page != 0 {
			t.Fatalf("frame %d at %d: head %d, whole %d, tail %d bytes", n, len(file), len(head), whole, len(tail))
		}
		file = append(append(append(file, head...), body[:whole]...), tail...)
	}
	if uint64(len(file)) != w.Offset {
		t.Fatalf("the writer is at %d of %d", w.Offset, len(file))
	}
	return w.End(file), bodies
}

// TestAnotherReaderReadsIt reads the file with the format's own Go reader, in order and by the index, with all CRCs.
func TestAnotherReaderReadsIt(t *testing.T) {
	for _, size := range []int{0, 1, 4095, 4096, 4097, 100_000, 8192 - 60} {
		file, bodies := sample(t, 20, size)
		for _, indexed := range []bool{false, true} {
			r, err := foxglove.NewReader(bytes.NewReader(file))
			if err != nil {
				t.Fatal(err)
			}
			it, err := r.Messages(foxglove.UsingIndex(indexed))
			if err != nil {
				t.Fatal(err)
			}
			frames, books := 0, 0
			for {
				s, c, m, err := it.NextInto(nil)
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatalf("size %d, indexed %t: %v", size, indexed, err)
				}
				switch c.Topic {
				case "/camera":
					if s.Name != "sensor_msgs/msg/Image" || c.Metadata["bits"] != "10" || !bytes.Equal(m.Data, append([]byte("prefix"), bodies[m.Sequence]...)) {
						t.Fatalf("frame %d differs", m.Sequence)
					}
					frames++
				case "/books":
					books++
				}
			}
			if frames != len(bodies) || books != len(bodies) {
				t.Errorf("size %d, indexed %t: %d frames, %d small messages", size, indexed, frames, books)
			}
		}
	}
}

// TestAnotherReaderChecksIt checks attachments, metadata and statistics, and every CRC.
func TestAnotherReaderChecksIt(t *testing.T) {
	file, _ := sample(t, 7, 5000)
	lexer, err := foxglove.NewLexer(bytes.NewReader(file), &foxglove.LexerOptions{
		ValidateChunkCRCs: true, ComputeAttachmentCRCs: true,
		AttachmentCallback: func(a *foxglove.AttachmentReader) error {
			data, err := io.ReadAll(a.Data())
			if err != nil {
				return err
			}
			want, err := a.ParsedCRC()
			if got, err2 := a.ComputedCRC(); err != nil || err2 != nil || got != want || string(data) != "sources: []\n" {
				t.Errorf("attachment %q: CRC %#x, %#x: %v, %v", data, got, want, err, err2)
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[foxglove.TokenType]int{}
	for {
		token, _, err := lexer.Next(nil)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		seen[token]++
	}
	if seen[foxglove.TokenMessage] != 14 || seen[foxglove.TokenMetadata] != 1 || seen[foxglove.TokenFooter] != 1 {
		t.Errorf("%v", seen)
	}
	r, err := foxglove.NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	info, err := r.Info()
	if err != nil {
		t.Fatal(err)
	}
	st := info.Statistics
	want := &foxglove.Statistics{
		MessageCount: 14, SchemaCount: 2, ChannelCount: 3, AttachmentCount: 1, MetadataCount: 1, ChunkCount: 7, MessageStartTime: 1000,
		MessageEndTime: 1011, ChannelMessageCounts: map[uint16]uint64{1: 7, 2: 7, 3: 0},
	}
	if !reflect.DeepEqual(st, want) || len(info.AttachmentIndexes) != 1 || len(info.MetadataIndexes) != 1 || info.Header.Profile != "ros2" {
		t.Errorf("statistics %+v, want %+v", st, want)
	}
	m, err := r.GetMetadata(info.MetadataIndexes[0].Offset)
	if err != nil || m.Metadata["sensor"] != "rggb10" {
		t.Errorf("%+v: %v", m, err)
	}
}

// TestAnUnfinishedFileIsReadToItsLastChunk uses the format's own reader.
func TestAnUnfinishedFileIsReadToItsLastChunk(t *testing.T) {
	file, _ := sample(t, 10, 9000)
	for _, cut := range []int{len(file) / 2, len(file) / 3, page + 5} {
		r, err := foxglove.NewReader(bytes.NewReader(file[:cut]))
		if err != nil {
			t.Fatal(err)
		}
		it, err := r.Messages(foxglove.UsingIndex(false))
		if err != nil {
			t.Fatal(err)
		}
		frames := 0
		for {
			_, c, _, err := it.NextInto(nil)
			if err != nil {
				break
			}
			if c.Topic == "/camera" {
				frames++
			}
		}
		if want := (cut - page) / (4 * page); frames < want-1 || frames > want+1 {
			t.Errorf("cut at %d: %d frames, want about %d", cut, frames, want)
		}
	}
}

func TestHeadsThatDoNotFit(t *testing.T) {
	w, _, err := NewWriter("", "", page, nil, []Channel{{ID: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := w.Frame(nil, nil, page, Message{Channel: 1}, make([]byte, page-chunkHead-messageHead-5), nil, nil); !errors.Is(err, ErrHead) {
		t.Errorf("%v", err)
	}
	if _, _, _, err := w.Frame(nil, nil, page, Message{Channel: 1}, make([]byte, page-chunkHead-messageHead), nil, nil); err != nil {
		t.Errorf("%v", err)
	}
	if _, _, err := NewWriter("", "", page, nil, []Channel{{ID: 1}, {ID: 1}}); err == nil {
		t.Error("two channels have one number")
	}
}
