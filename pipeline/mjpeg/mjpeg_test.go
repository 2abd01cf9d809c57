// SPDX-License-Identifier: Apache-2.0

package mjpeg

import (
	"bytes"
	"errors"
	"image"
	"image/color"
	"image/jpeg"
	"slices"
	"testing"
)

func file(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	img := image.NewRGBA(image.Rect(0, 0, 24, 16))
	img.Set(1, 1, color.White)
	if err := jpeg.Encode(&b, img, nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// without returns the file without its Huffman tables.
func without(t testing.TB, file []byte) []byte {
	t.Helper()
	at := bytes.Index(file, []byte{0xff, dht})
	return slices.Delete(slices.Clone(file), at, at+2+0x1a2)
}

// TestHuffmanTables compares the tables with those in a file by image/jpeg.
func TestHuffmanTables(t *testing.T) {
	tables := HuffmanTables()
	if all := slices.Concat(tables[:]...); !bytes.Contains(file(t), append([]byte{0xff, 0xc4, 0x01, 0xa2}, all...)) {
		t.Fatal("not the DHT of image/jpeg")
	}
}

// TestAppend completes a file without tables and with padding, and leaves a whole one as it is.
func TestAppend(t *testing.T) {
	whole := file(t)
	for name, b := range map[string][]byte{
		"whole": whole, "padded": append(slices.Clone(whole), 0, 0, 0), "no tables": without(t, whole),
		"fill bytes": slices.Insert(without(t, whole), 2, 0xff, 0xff),
	} {
		got, err := Append([]byte("before"), b)
		if err != nil || !bytes.HasPrefix(got, []byte("before")) {
			t.Fatalf("%s: %v", name, err)
		}
		if name == "whole" && !bytes.Equal(got[6:], whole) || name == "padded" && !bytes.Equal(got[6:], whole) {
			t.Errorf("%s: changed", name)
		}
		if _, err := jpeg.Decode(bytes.NewReader(got[6:])); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, b := range map[string][]byte{
		"empty": nil, "no SOI": whole[2:], "cut": whole[:len(whole)-2], "short segment": slices.Replace(slices.Clone(whole), 4, 6, 0, 1),
		"long segment": slices.Replace(slices.Clone(whole), 4, 6, 0xff, 0xff), "no segments": {0xff, soi, 0xff, eoi}, "noise": {0xff, soi, 1, 2, 3, 4, 0xff, eoi},
	} {
		if _, err := Append(nil, b); !errors.Is(err, ErrFile) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzAppend(f *testing.F) {
	f.Add(file(f))
	f.Add(without(f, file(f)))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := Append(nil, b)
		if err != nil {
			if len(got) > 0 || !errors.Is(err, ErrFile) {
				t.Fatal(err)
			}
			return
		}
		if again, err := Append(nil, got); err != nil || !bytes.Equal(again, got) {
			t.Fatalf("completed again: %v", err)
		}
	})
}
