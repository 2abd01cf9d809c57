// SPDX-License-Identifier: Apache-2.0

package rtp

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"slices"
	"testing"

	pion "github.com/pion/rtp"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/codec"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// rfc2435 checks all header fields according to RFC 2435 §3.1 and returns tables and scan.
func rfc2435(t *testing.T, wire [][]byte, w, h int) (quant, scan []byte) {
	t.Helper()
	for i, b := range wire {
		var p pion.Packet
		if err := p.Unmarshal(b); err != nil {
			t.Fatal(err)
		}
		if p.PayloadType != 26 || p.Marker != (i == len(wire)-1) || len(b)+48 > 1500 {
			t.Fatalf("packet %d of %d, %d bytes: %v", i, len(wire), len(b), p.Header)
		}
		if i < len(wire)-1 && len(b) != len(wire[0]) {
			t.Fatalf("packet %d has %d bytes, the first %d", i, len(b), len(wire[0]))
		}
		y := p.Payload
		off := int(y[1])<<16 | int(y[2])<<8 | int(y[3])
		if y[0] != 0 || off != len(scan) || y[4] != 1 || y[5] != 255 || int(y[6]) != (w+7)/8 || int(y[7]) != (h+7)/8 {
			t.Fatalf("packet %d: JPEG header % x at offset %d", i, y[:8], len(scan))
		}
		y = y[8:]
		if i == 0 {
			if !bytes.Equal(y[:4], []byte{0, 0, 0, 128}) {
				t.Fatalf("table header % x", y[:4])
			}
			quant, y = y[4:132], y[132:]
		}
		scan = append(scan, y...)
	}
	return quant, scan
}

func encode(t testing.TB, f *pipeline.Frame, quality int) []byte {
	t.Helper()
	return encodeBy(t, NewJPEGEncoder(quality), f)
}

func encodeBy(t testing.TB, e JPEGEncoder, f *pipeline.Frame) []byte {
	t.Helper()
	b, err := e.Encode(make([]byte, 0, 4*f.Format.Size()+4096), f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestJPEGPacketsByTheRFC(t *testing.T) {
	turbo, err := codec.NewTurboJPEG(90)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = turbo.Close() })
	t.Run("image/jpeg", func(t *testing.T) { jpegPackets(t, NewJPEGEncoder(90)) })
	t.Run("libjpeg-turbo", func(t *testing.T) { jpegPackets(t, turbo) })
}

func jpegPackets(t *testing.T, e JPEGEncoder) {
	for _, tt := range []struct{ w, h int }{{320, 240}, {960, 540}, {2040, 16}, {16, 16}, {22, 10}, {2, 2}, {4, 4}, {8, 2}, {8, 8}, {16, 2}, {2, 16}} {
		t.Run(fmt.Sprintf("%dx%d", tt.w, tt.h), func(t *testing.T) {
			f := rtptest.Format(t, pipeline.I420, tt.w, tt.h, 10)
			s := testPacking(t, Stream{Payload: JPEG, Start: testStart(), Checksum: true, Encoder: e}, f)
			for n := range 3 { // no frame may keep data of the one before, which is shorter or longer
				frame := rtptest.Frame(f, n)
				if n%2 == 0 {
					clear(frame.Bytes)
				}
				wire := packets(t, s, frame)
				quant, scan := rfc2435(t, wire, tt.w, tt.h)
				header := JPEGHeader{Type: jpeg420}
				file := header.AppendJFIF(nil, tt.w, tt.h, quant, &s.Packetizer.(*jpegPacketizer).parser.huffman)
				if len(file) != header.FileHeader() {
					t.Fatalf("JFIF header of %d bytes, want %d", len(file), header.FileHeader())
				}
				file = append(append(file, scan...), 0xff, 0xd9)
				got, err := jpeg.Decode(bytes.NewReader(file))
				if err != nil {
					t.Fatal(err)
				}
				want, err := jpeg.Decode(bytes.NewReader(encodeBy(t, e, frame)))
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(got.(*image.YCbCr).Y, want.(*image.YCbCr).Y) || !slices.Equal(got.(*image.YCbCr).Cr, want.(*image.YCbCr).Cr) {
					t.Fatal("the picture from the packets is not the encoder's")
				}
			}
		})
	}
}

func TestGoEncoderReadsTheSlot(t *testing.T) {
	f := rtptest.Format(t, pipeline.I420, 64, 48, 10)
	f.Stride = 80
	frame := rtptest.Frame(f, 3)
	img, err := jpeg.Decode(bytes.NewReader(encode(t, frame, 100)))
	if err != nil {
		t.Fatal(err)
	}
	var got, want []byte
	for y := range f.Height {
		got = append(got, img.(*image.YCbCr).Y[y*img.(*image.YCbCr).YStride:][:f.Width]...)
		want = append(want, frame.Bytes[y*f.Stride:][:f.Width]...)
	}
	if db := rtptest.PSNR(got, want); db < 45 {
		t.Fatalf("%.1f dB", db)
	}
	if _, err := NewJPEGEncoder(90).Encode(make([]byte, 0, 100), frame); err == nil {
		t.Error("wrote beyond the capacity")
	}
	frame.Bytes = frame.Bytes[:len(frame.Bytes)-1]
	if _, err := NewJPEGEncoder(90).Encode(make([]byte, 0, 1<<20), frame); !errors.Is(err, ErrFormat) {
		t.Errorf("short frame: %v", err)
	}
}

func TestJPEGParserRefuses(t *testing.T) {
	f := rtptest.Format(t, pipeline.I420, 64, 48, 10)
	good := encode(t, rtptest.Frame(f, 0), 90)
	p := newJPEGParser()
	img, err := p.parse(good)
	if err != nil || img.width != 64 || img.height != 48 || len(img.quant[0]) != 64 || img.quant[0][0] != 3 {
		t.Fatalf("%v %+v", err, img)
	}
	at := func(mark byte) int { return bytes.Index(good, []byte{0xff, mark}) }
	edit := func(i int, v ...byte) []byte { b := slices.Clone(good); copy(b[i:], v); return b }
	insert := func(i int, v ...byte) []byte { return slices.Concat(good[:i], v, good[i:]) }
	var grey bytes.Buffer
	if err := jpeg.Encode(&grey, image.NewGray(image.Rect(0, 0, 16, 16)), nil); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"empty":          nil,
		"no SOI":         good[2:],
		"grey":           grey.Bytes(),
		"progressive":    edit(at(0xc0)+1, 0xc2),
		"12 bits":        edit(at(0xc0)+4, 12),
		"4:4:4":          edit(at(0xc0)+11, 0x11),
		"tall MCUs":      edit(at(0xc0)+11, 0x22, 0, 2, 0x12, 1, 3, 0x12), // 4:2:2 as FFmpeg writes it
		"width 0":        edit(at(0xc0)+7, 0, 0),
		"two SOF":        insert(at(0xc4), good[at(0xc0):at(0xc4)]...),
		"16-bit table":   edit(at(0xdb)+4, 0x10),
		"other Huffman":  edit(at(0xc4)+21, 9),
		"short interval": insert(at(0xda), 0xff, 0xdd, 0, 3, 8),
		"no tables":      slices.Concat(good[:at(0xdb)], good[at(0xc0):]),
		"some Huffman":   slices.Concat(good[:at(0xc4)], []byte{0xff, 0xc4, 0, 31}, good[at(0xc4)+4:at(0xc4)+33], good[at(0xda):]),
		"a third table":  edit(at(0xc0)+18, 0),
		"swapped tables": edit(at(0xda)+6, 0x11),
		"no EOI":         good[:len(good)-2],
		"marker in scan": edit(at(0xda)+40, 0xff, 0xd0),
		"long segment":   edit(at(0xdb)+2, 0xff, 0xff),
		"short segment":  edit(at(0xdb)+2, 0, 1),
		"no scan":        slices.Concat(good[:at(0xda)+14], []byte{0xff, 0xd9}),
	} {
		if _, err := p.parse(b); !errors.Is(err, ErrJPEG) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := p.parse(insert(2, 0xff, 0xe0, 0, 4, 1, 2)); err != nil {
		t.Errorf("APP0: %v", err)
	}
}

// badEncoder returns files of the wrong size, or in memory of its own.
type badEncoder struct {
	file  []byte
	alien bool
}

func (badEncoder) Close() error { return nil }

func (e badEncoder) Encode(dst []byte, _ *pipeline.Frame) ([]byte, error) {
	if e.alien {
		return e.file, nil
	}
	return append(dst, e.file...), nil
}

func TestJPEGEncoderIsNotTrusted(t *testing.T) {
	f := rtptest.Format(t, pipeline.I420, 64, 48, 10)
	file := encode(t, rtptest.Frame(f, 0), 90)
	small := encode(t, rtptest.Frame(rtptest.Format(t, pipeline.I420, 32, 48, 10), 0), 90)
	for name, e := range map[string]badEncoder{"own memory": {file, true}, "other size": {small, false}, "nothing": {nil, false}} {
		s := testPacking(t, Stream{Payload: JPEG, Encoder: e}, f)
		if err := s.Packetize(s.train, rtptest.Frame(f, 0)); !errors.Is(err, ErrJPEG) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzJPEG(f *testing.F) {
	format := rtptest.Format(f, pipeline.I420, 32, 32, 10)
	good := encode(f, rtptest.Frame(format, 0), 50)
	f.Add(good)
	f.Add(good[:len(good)/2])
	for _, file := range cameraFiles(f) {
		f.Add(file)
	}
	f.Add([]byte{0xff, 0xd8, 0xff, 0xd9})
	p := newJPEGParser()
	f.Fuzz(func(t *testing.T, b []byte) {
		img, err := p.parse(b)
		if err != nil {
			if !errors.Is(err, ErrJPEG) {
				t.Fatal(err)
			}
			return
		}
		if img.width < 1 || img.height < 1 || len(img.quant[0]) != 64 || len(img.quant[1]) != 64 || len(img.scan) == 0 {
			t.Fatalf("accepted %+v", img)
		}
		// A file that the parser accepts must be unchanged after a round trip through our own header.
		back, err := newJPEGParser().parse(p.rebuild(nil, &img))
		if err != nil || !bytes.Equal(back.scan, img.scan) || !bytes.Equal(back.quant[1], img.quant[1]) || back.kind != img.kind || back.restart != img.restart {
			t.Fatalf("rebuilt file: %v", err)
		}
	})
}
