// SPDX-License-Identifier: Apache-2.0

package record

import (
	"io"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/tegracast/tegracast/pipeline/record/mcap"
	"github.com/tegracast/tegracast/pipeline/record/mp4"
)

// A videoWriter appends the encoded pictures of a file to a buffer.
type videoWriter interface {
	// Fragment writes pictures; end is the capture time of the picture after them.
	Fragment(samples []mp4.Sample, end time.Time) error
	// Close writes the index.
	Close() error
}

// mcapVideo writes encoded pictures as MCAP: messages of foxglove.CompressedVideo or foxglove.CompressedImage, and the
// notes of their frames. A chunk is a fragment.
type mcapVideo struct {
	out    io.Writer
	writer *mcap.Writer
	schema string
	format string // of the pictures, for readers
	frame  string // name of the source
	next   uint32 // number of the next picture in the file
	parts  []mcap.Part
}

func newMCAPVideo(out io.Writer, c *VideoConfig) (*mcapVideo, error) {
	v := &mcapVideo{out: out, schema: compressedVideoName, format: "h264", frame: c.Source}
	topic := "/" + c.Source + "/video"
	if c.Codec == mp4.JPEG {
		v.schema, v.format, topic = compressedImageName, "jpeg", "/"+c.Source+"/image"
	}
	w, b, err := mcap.NewWriter("", c.Library, page, []mcap.Schema{
		{ID: 1, Name: v.schema, Encoding: "protobuf", Data: protobufSchema(v.schema)},
		{ID: 2, Name: noteName, Encoding: "jsonschema", Data: []byte(noteSchema)},
	}, []mcap.Channel{
		{ID: imageChannel, Schema: 1, Topic: topic, Encoding: "protobuf", Metadata: map[string]string{"pixels": v.format}},
		{ID: noteChannel, Schema: 2, Topic: "/" + c.Source + "/frame", Encoding: "json"},
	})
	if err != nil {
		return nil, err
	}
	if at := uint64(time.Now().UnixNano()); len(c.Configuration) > 0 {
		b = w.AppendAttachment(b, mcap.Attachment{Log: at, Created: at, Name: "tegracast.yaml", Media: "application/yaml", Data: c.Configuration})
	}
	v.writer = w
	_, err = out.Write(w.Pad(b, page))
	return v, err
}

// Fragment implements videoWriter.
func (v *mcapVideo) Fragment(samples []mp4.Sample, _ time.Time) error {
	v.parts = v.parts[:0]
	for i := range samples {
		s := &samples[i]
		m := mcap.Message{Channel: imageChannel, Sequence: v.next, Log: uint64(s.At.UnixNano()), Publish: uint64(s.At.UnixNano())}
		v.parts = append(v.parts, mcap.Part{Message: m, Data: v.message(s)})
		m.Channel = noteChannel
		v.parts = append(v.parts, mcap.Part{Message: m, Data: s.Note})
		v.next++
	}
	_, err := v.out.Write(v.writer.Messages(nil, page, v.parts...))
	return err
}

// message returns the message with a picture.
func (v *mcapVideo) message(s *mp4.Sample) []byte {
	n, _ := protobufOf(v.schema)
	at, _ := proto.Marshal(timestamppb.New(s.At)) // always succeeds: it contains no text
	b := make([]byte, 0, len(s.Data)+len(v.frame)+64)
	field := func(number uint64, content []byte) {
		b = protowire.AppendBytes(protowire.AppendTag(b, protowire.Number(number), protowire.BytesType), content)
	}
	field(n.at, at)
	field(n.frame, []byte(v.frame))
	field(n.data, s.Data)
	field(n.encoding, []byte(v.format))
	return b
}

// Close implements videoWriter.
func (v *mcapVideo) Close() error {
	_, err := v.out.Write(v.writer.End(nil))
	return err
}

// protobufSchema returns the definition of a schema of compressed pictures as a FileDescriptorSet, as MCAP asks for
// (https://mcap.dev/spec/registry).
func protobufSchema(name string) []byte {
	n, _ := protobufOf(name)
	field := func(name string, number uint64, kind descriptorpb.FieldDescriptorProto_Type) *descriptorpb.FieldDescriptorProto {
		return &descriptorpb.FieldDescriptorProto{
			Name: &name, Number: proto.Int32(int32(number)), Type: &kind, Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
		}
	}
	at := field("timestamp", n.at, descriptorpb.FieldDescriptorProto_TYPE_MESSAGE)
	at.TypeName = proto.String(".google.protobuf.Timestamp")
	short := name[len("foxglove."):]
	file := &descriptorpb.FileDescriptorProto{
		Name: proto.String("foxglove/" + short + ".proto"), Package: proto.String("foxglove"), Syntax: proto.String("proto3"),
		Dependency: []string{"google/protobuf/timestamp.proto"},
		MessageType: []*descriptorpb.DescriptorProto{{Name: &short, Field: []*descriptorpb.FieldDescriptorProto{
			at,
			field("frame_id", n.frame, descriptorpb.FieldDescriptorProto_TYPE_STRING),
			field("data", n.data, descriptorpb.FieldDescriptorProto_TYPE_BYTES),
			field("format", n.encoding, descriptorpb.FieldDescriptorProto_TYPE_STRING),
		}}},
	}
	set := &descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{
		protodesc.ToFileDescriptorProto(timestamppb.File_google_protobuf_timestamp_proto), file,
	}}
	b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(set) // always succeeds: its texts are constants
	return b
}
