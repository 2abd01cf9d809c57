// SPDX-License-Identifier: Apache-2.0

package channel

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

func TestFramesGoThrough(t *testing.T) {
	var wire bytes.Buffer
	c := New(&wire)
	want := []Frame{
		{Hello, 0, nil},
		{Request, 7, []byte(`{"Op":"run"}`)},
		{Stdout, 7, bytes.Repeat([]byte{0xa5}, MaxPayload)},
		{Exit, 0xffffffff, []byte("{}")},
	}
	for _, f := range want {
		if err := c.Send(f.Kind, f.ID, f.Payload); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range want {
		got, err := c.Receive()
		if err != nil || got.Kind != f.Kind || got.ID != f.ID || !bytes.Equal(got.Payload, f.Payload) {
			t.Fatalf("got %v %d, %d bytes, %v", got.Kind, got.ID, len(got.Payload), err)
		}
	}
	if _, err := c.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v, want io.EOF", err)
	}
	if err := c.Send(Data, 1, make([]byte, MaxPayload+1)); err == nil {
		t.Error("a payload that is too long was sent")
	}
}

func TestWriterCutsIntoPieces(t *testing.T) {
	var wire bytes.Buffer
	c := New(&wire)
	data := bytes.Repeat([]byte("0123456789"), Piece/5)
	if n, err := c.Writer(Data, 3).Write(data); n != len(data) || err != nil {
		t.Fatal(n, err)
	}
	var got []byte
	frames := 0
	for ; wire.Len() > 0; frames++ {
		f, err := c.Receive()
		if err != nil || f.Kind != Data || f.ID != 3 || len(f.Payload) > Piece {
			t.Fatal(f.Kind, f.ID, len(f.Payload), err)
		}
		got = append(got, f.Payload...)
	}
	if !bytes.Equal(got, data) || frames != 2 {
		t.Errorf("%d bytes in %d frames", len(got), frames)
	}
}

func TestNoFrame(t *testing.T) {
	for name, c := range map[string]struct {
		wire string
		want error
	}{
		"too long":   {"\xff\xff\xff\xff\x00\x00\x00\x00\x01", ErrFrame},
		"kind 0":     {"\x00\x00\x00\x00\x00\x00\x00\x00\x00", ErrFrame},
		"kind 9":     {"\x00\x00\x00\x00\x00\x00\x00\x00\x09", ErrFrame},
		"cut header": {"\x00\x00\x00", io.ErrUnexpectedEOF},
		"cut":        {"\x02\x00\x00\x00\x00\x00\x00\x00\x06a", io.ErrUnexpectedEOF},
		"only head":  {"\x02\x00\x00\x00\x00\x00\x00\x00\x06", io.ErrUnexpectedEOF},
	} {
		if _, err := New(bytes.NewBufferString(c.wire)).Receive(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// FuzzReceive checks that a received frame is sent as the same bytes.
func FuzzReceive(f *testing.F) {
	f.Add([]byte("\x02\x00\x00\x00\x05\x00\x00\x00\x06ab\x00\x00\x00\x00\x00\x00\x00\x00\x01"))
	f.Add([]byte("\xff\xff\xff\xff\x00\x00\x00\x00\x01"))
	f.Fuzz(func(t *testing.T, wire []byte) {
		in := New(bytes.NewBuffer(wire))
		var out bytes.Buffer
		again := New(&out)
		for {
			fr, err := in.Receive()
			if err != nil {
				break
			}
			if err := again.Send(fr.Kind, fr.ID, fr.Payload); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.HasPrefix(wire, out.Bytes()) {
			t.Errorf("%x became %x", wire, out.Bytes())
		}
	})
}
