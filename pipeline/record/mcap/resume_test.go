// SPDX-License-Identifier: Apache-2.0

package mcap

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	foxglove "github.com/foxglove/mcap/go/mcap"
)

// all returns the messages of a file's chunks.
func all(f *File) (list []MessageInfo) {
	for i := range f.Chunks {
		if messages, err := f.Messages(i); err == nil {
			list = append(list, messages...)
		}
	}
	return list
}

// resumed returns an unfinished file with its end, without the chunks of which a message cannot be read.
func resumed(t *testing.T, b []byte, f *File) []byte {
	t.Helper()
	w, tail, _, err := f.Resume(t.Context(), func(int) bool { return false })
	if errors.Is(err, ErrNotOwn) || errors.Is(err, ErrDamaged) {
		return nil
	} else if err != nil {
		t.Fatal(err)
	}
	return append(bytes.Clone(b[:f.End]), w.End(tail)...)
}

// TestAnUnfinishedFileIsResumed cuts a file everywhere: with its end it has the same messages, attachments and metadata,
// also for the format's own reader by its index.
func TestAnUnfinishedFileIsResumed(t *testing.T) {
	whole, _ := sample(t, 3, 5000)
	end := len(whole)
	for at := page; at < end; at += 13 {
		f := openBytes(t, whole[:at])
		want := all(f)
		b := resumed(t, whole[:at], f)
		got := openBytes(t, b)
		if !got.Finished || got.Trouble != nil || !slices.Equal(all(got), want) {
			t.Fatalf("cut at %d: %d messages of %d, %v", at, len(all(got)), len(want), got.Trouble)
		}
		if len(got.Attachments) != len(f.Attachments) || len(got.Metadata) != len(f.Metadata) || got.Library != f.Library {
			t.Fatalf("cut at %d: %+v", at, got)
		}
		r, err := foxglove.NewReader(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		info, err := r.Info()
		if err != nil || int(info.Statistics.MessageCount) != len(want) || len(info.ChunkIndexes) != len(f.Chunks) {
			t.Fatalf("cut at %d: %+v, %v", at, info, err)
		}
		it, err := r.Messages(foxglove.UsingIndex(true))
		if err != nil {
			t.Fatal(err)
		}
		for n := 0; ; n++ {
			if _, _, _, err := it.NextInto(nil); err != nil {
				if n != len(want) {
					t.Fatalf("cut at %d: %d messages of %d: %v", at, n, len(want), err)
				}
				break
			}
		}
	}
}

// TestFilesOfOthersAreNotResumed checks that their compressed chunks are no damage.
func TestFilesOfOthersAreNotResumed(t *testing.T) {
	b := foreign(t, foxglove.CompressionLZ4, 100)
	_, _, _, err := openBytes(t, b[:len(b)-1]).Resume(t.Context(), func(int) bool { return false })
	if !errors.Is(err, ErrNotOwn) {
		t.Error(err)
	}
}

func FuzzResume(f *testing.F) {
	b, _ := sample(f, 2, 100)
	f.Add(b[:len(b)-1])
	f.Add(b[:3*page+100])
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := Open(t.Context(), bytes.NewReader(b), int64(len(b)))
		if err != nil || file.Finished {
			return
		}
		ended := resumed(t, b, file)
		if ended == nil {
			return
		}
		again := openBytes(t, ended)
		if whole := again.Finished && again.Trouble == nil; !whole && file.Trouble == nil || !slices.Equal(all(again), all(file)) {
			t.Errorf("%d messages of %d, %v", len(all(again)), len(all(file)), again.Trouble)
		}
	})
}
