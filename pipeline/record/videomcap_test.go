// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	foxglove "github.com/foxglove/mcap/go/mcap"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// TestVideoAsMCAP checks with Foxglove's reader and the protobuf library that an MCAP file has each picture as the schema
// in the file says, with the note of its frame, and that a truncated file is repaired.
func TestVideoAsMCAP(t *testing.T) {
	dir := t.TempDir()
	v := startVideo(t, VideoConfig{Directory: dir, Source: "camera", MCAP: true, Configuration: []byte("outputs: []\n")})
	for n := range uint64(25) {
		offer(v, n)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	paths, _ := filesOf(dir, "rec", Extension)
	if len(paths) != 1 {
		t.Fatal(paths)
	}
	whole, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	if n := videoMessages(t, whole); n != 25 {
		t.Errorf("%d pictures", n)
	}
	if err := os.WriteFile(paths[0], whole[:len(whole)*2/3], 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := Repair(t.Context(), paths[0]); err != nil || r.Finished {
		t.Fatalf("%+v, %v", r, err)
	}
	repaired, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	if n := videoMessages(t, repaired); n < 10 || n%5 != 0 {
		t.Errorf("repaired: %d pictures", n)
	}
}

// videoMessages returns the number of pictures in a file, after checking each and its note.
func videoMessages(t *testing.T, file []byte) (pictures uint64) {
	t.Helper()
	r, err := foxglove.NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	list, err := r.Messages(foxglove.UsingIndex(true))
	if err != nil {
		t.Fatal(err)
	}
	notes := uint64(0)
	for {
		schema, channel, m, err := list.NextInto(nil)
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if channel.Topic == "/camera/frame" {
			var n Note
			if err := json.Unmarshal(m.Data, &n); err != nil || n.Frame != 1000+notes || m.Sequence != uint32(notes) {
				t.Errorf("note %d: %+v, %v", notes, n, err)
			}
			notes++
			continue
		}
		at := testBegin.Add(time.Duration(pictures) * testPeriod)
		got := decodeProtobuf(t, schema, m.Data)
		field := func(name protoreflect.Name) protoreflect.Value {
			return got.Get(got.Descriptor().Fields().ByName(name))
		}
		stamp := field("timestamp").Message()
		seconds := stamp.Get(stamp.Descriptor().Fields().ByName("seconds")).Int()
		nanos := stamp.Get(stamp.Descriptor().Fields().ByName("nanos")).Int()
		if schema.Name != "foxglove.CompressedVideo" || channel.Topic != "/camera/video" || m.LogTime != uint64(at.UnixNano()) ||
			!time.Unix(seconds, nanos).Equal(at) || field("frame_id").String() != "camera" || field("format").String() != "h264" ||
			!bytes.Equal(field("data").Bytes(), testUnit(pictures, pictures%testGroup == 0)) {
			t.Errorf("picture %d: %s %s at %d: %v", pictures, schema.Name, channel.Topic, m.LogTime, got)
		}
		pictures++
	}
	if notes != pictures {
		t.Errorf("%d notes of %d pictures", notes, pictures)
	}
	return pictures
}

// decodeProtobuf decodes a message as its schema says.
func decodeProtobuf(t *testing.T, schema *foxglove.Schema, data []byte) *dynamicpb.Message {
	t.Helper()
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(schema.Data, &set); err != nil {
		t.Fatal(err)
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		t.Fatal(err)
	}
	d, err := files.FindDescriptorByName(protoreflect.FullName(schema.Name))
	if err != nil {
		t.Fatal(err)
	}
	m := dynamicpb.NewMessage(d.(protoreflect.MessageDescriptor))
	if err := proto.Unmarshal(data, m); err != nil {
		t.Fatal(err)
	}
	return m
}
