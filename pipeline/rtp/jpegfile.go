// SPDX-License-Identifier: Apache-2.0

package rtp

import (
	"bytes"
	"fmt"

	"github.com/tegracast/tegracast/pipeline/mjpeg"
)

// JPEG markers (ITU-T T.81 Table B.1), without the preceding 0xff.
const (
	markSOF0 = 0xc0
	markDHT  = 0xc4
	markSOI  = 0xd8
	markEOI  = 0xd9
	markSOS  = 0xda
	markDQT  = 0xdb
	markDRI  = 0xdd
	markRST0 = 0xd0
	markRST7 = 0xd7
	markAPP0 = 0xe0
	markAPPF = 0xef
	markCOM  = 0xfe
)

// jpegImage holds the parts of a JPEG file that RFC 2435 needs. The slices refer to the file.
type jpegImage struct {
	kind          byte // RFC 2435 §4.1: 0 for 4:2:2, 1 for 4:2:0, and 64 more with restart markers
	width, height int
	restart       uint16    // MCUs between restart markers; 0: there are none
	quant         [2][]byte // luminance and chrominance, 64 bytes each, in zigzag order
	scan          []byte    // the entropy-coded segment, without EOI
	file          []byte    // the file up to EOI; nil if it has no Huffman tables
}

// jpegParser parses JPEG files that RFC 2435 types 0, 1, 64 and 65 can carry: baseline, 8 bits, Y'CbCr 4:2:2 or 4:2:0
// in one interleaved scan, 8-bit quantization tables, the same one for both chroma components, the standard Huffman
// tables, or none, as in Motion JPEG. It refuses all others, and ignores what follows EOI, with which cameras pad.
type jpegParser struct {
	huffman [4][]byte

	b    []byte
	pos  int
	img  jpegImage
	dqt  [4][]byte
	dht  int     // set of the standard Huffman tables seen so far
	comp [3]byte // component identifiers
	tq   [3]byte // quantization tables of the components

	factors [3]byte // sampling factors of the components
}

func newJPEGParser() *jpegParser { return &jpegParser{huffman: mjpeg.HuffmanTables()} }

func (p *jpegParser) bad(format string, a ...any) error {
	return fmt.Errorf("%w: byte %d: %s", ErrJPEG, p.pos, fmt.Sprintf(format, a...))
}

// parse parses the file b. It allocates only for errors.
func (p *jpegParser) parse(b []byte) (jpegImage, error) {
	*p = jpegParser{huffman: p.huffman, b: b}
	if len(b) < 4 || b[0] != 0xff || b[1] != markSOI {
		return jpegImage{}, p.bad("no SOI marker")
	}
	for p.pos = 2; ; {
		for len(b)-p.pos > 4 && b[p.pos] == 0xff && b[p.pos+1] == 0xff { // fill bytes (T.81 §B.1.1.2)
			p.pos++
		}
		if len(b)-p.pos < 4 || b[p.pos] != 0xff {
			return jpegImage{}, p.bad("no marker segment")
		}
		mark, size := b[p.pos+1], int(be.Uint16(b[p.pos+2:]))
		if size < 2 || size > len(b)-p.pos-2 {
			return jpegImage{}, p.bad("segment %#02x of %d bytes ends beyond the file", mark, size)
		}
		if err := p.segment(mark, b[p.pos+4:p.pos+2+size]); err != nil {
			return jpegImage{}, err
		}
		p.pos += 2 + size
		if mark == markSOS {
			err := p.scan()
			return p.img, err
		}
	}
}

func (p *jpegParser) segment(mark byte, s []byte) error {
	switch {
	case mark == markSOF0:
		return p.frame(s)
	case mark == markDQT:
		return p.quantization(s)
	case mark == markDHT:
		return p.huffmanTable(s)
	case mark == markDRI:
		if len(s) != 2 {
			return p.bad("DRI of %d bytes", len(s))
		}
		p.img.restart = be.Uint16(s)
		return nil
	case mark == markSOS:
		return p.scanHeader(s)
	case mark >= markAPP0 && mark <= markAPPF, mark == markCOM:
		return nil
	case mark > markSOF0 && mark < 0xd0:
		return p.bad("SOF%d: must be baseline, SOF0", mark-markSOF0)
	}
	return p.bad("marker %#02x: RFC 2435 has no place for it", mark)
}

func (p *jpegParser) quantization(s []byte) error {
	for ; len(s) > 0; s = s[65:] {
		if s[0] > 3 || len(s) < 65 {
			return p.bad("DQT: tables must be of 8 bits, 64 entries, numbers 0 to 3")
		}
		p.dqt[s[0]] = s[1:65]
	}
	return nil
}

func (p *jpegParser) huffmanTable(s []byte) error {
next:
	for len(s) > 0 {
		for i, std := range p.huffman {
			if bytes.HasPrefix(s, std) {
				p.dht |= 1 << i
				s = s[len(std):]
				continue next
			}
		}
		return p.bad("DHT: table %#02x is not the standard one of T.81 Annex K.3: switch off optimised Huffman tables", s[0])
	}
	return nil
}

func (p *jpegParser) frame(s []byte) error {
	if p.img.width != 0 {
		return p.bad("second SOF0")
	}
	if len(s) != 15 || s[0] != 8 || s[5] != 3 {
		return p.bad("SOF0: must be of 8 bits and 3 components")
	}
	p.img.height, p.img.width = int(be.Uint16(s[1:])), int(be.Uint16(s[3:]))
	if p.img.width == 0 || p.img.height == 0 {
		return p.bad("SOF0: %dx%d pixels", p.img.width, p.img.height)
	}
	for i := range 3 {
		c := s[6+3*i:]
		p.comp[i], p.tq[i], p.factors[i] = c[0], c[2], c[1]
	}
	switch p.factors {
	case [3]byte{0x21, 0x11, 0x11}:
		p.img.kind = jpeg422
	case [3]byte{0x22, 0x11, 0x11}:
		p.img.kind = jpeg420
	default:
		return p.bad("SOF0: sampling factors % x, must be 21 11 11 (4:2:2) or 22 11 11 (4:2:0)", p.factors)
	}
	return nil
}

func (p *jpegParser) scanHeader(s []byte) error {
	if p.img.width == 0 || p.dht != 0xf && p.dht != 0 {
		return p.bad("SOS before SOF0, or with some of the four Huffman tables")
	}
	if p.tq[0] > 3 || p.tq[1] > 3 || p.tq[2] != p.tq[1] || p.dqt[p.tq[0]] == nil || p.dqt[p.tq[1]] == nil {
		return p.bad("quantization tables %d: must be defined, the same one for both chroma components", p.tq)
	}
	p.img.quant = [2][]byte{p.dqt[p.tq[0]], p.dqt[p.tq[1]]}
	want := [10]byte{3, p.comp[0], 0x00, p.comp[1], 0x11, p.comp[2], 0x11, 0, 63, 0}
	if !bytes.Equal(s, want[:]) {
		return p.bad("SOS % x: must be one sequential scan of all components with tables 0 and 1", s)
	}
	return nil
}

// scan sets the image's scan to the rest of the file up to EOI. A byte 0xff in the scan must be stuffed.
func (p *jpegParser) scan() error {
	if p.img.restart != 0 {
		p.img.kind += jpegRestart
	}
	rest := p.b[p.pos:]
	for at := 0; ; at += 2 {
		i := bytes.IndexByte(rest[at:], 0xff)
		if i < 0 || at+i+1 == len(rest) {
			p.pos = len(p.b)
			return p.bad("no EOI marker")
		}
		at += i
		switch mark := rest[at+1]; {
		case mark == 0xff: // a fill byte
			at--
		case mark == 0, mark >= markRST0 && mark <= markRST7 && p.img.restart != 0:
		case mark == markEOI:
			end := at
			for end > 0 && rest[end-1] == 0xff { // fill bytes
				end--
			}
			if p.img.scan = rest[:end]; end == 0 {
				return p.bad("no scan")
			}
			if p.dht != 0 {
				p.img.file = p.b[:p.pos+at+2]
			}
			return nil
		default:
			p.pos += at
			return p.bad("marker %#02x in the scan", mark)
		}
	}
}

// rebuild appends the file of an image with a header of its own, which has Huffman tables.
func (p *jpegParser) rebuild(b []byte, img *jpegImage) []byte {
	var quant [128]byte
	copy(quant[:64], img.quant[0])
	copy(quant[64:], img.quant[1])
	h := JPEGHeader{Type: img.kind, Restart: img.restart}
	b = append(h.AppendJFIF(b, img.width, img.height, quant[:], &p.huffman), img.scan...)
	return append(b, JPEGEnd...)
}

// jfifHeader is the length in bytes of a header that AppendJFIF appends with the tables of mjpeg.HuffmanTables, without the
// restart interval, and restartSegment that of the interval's segment.
const (
	jfifHeader     = 2 + 18 + 2*69 + 19 + 4 + 2*(17+12+17+162) + 14
	restartSegment = 6
)

// FileHeader returns the length in bytes of the header that AppendJFIF appends for the frame.
func (h JPEGHeader) FileHeader() int {
	if h.Restart != 0 {
		return jfifHeader + restartSegment
	}
	return jfifHeader
}

// JPEGEnd is the EOI marker, which ends a file.
const JPEGEnd = "\xff\xd9"

// AppendJFIF appends a JFIF header for a scan of a frame with header h to b (RFC 2435 Appendix B). width and height are
// in pixels. quant contains the tables of luma and chroma, 64 bytes each; huffman is as returned by mjpeg.HuffmanTables.
func (h JPEGHeader) AppendJFIF(b []byte, width, height int, quant []byte, huffman *[4][]byte) []byte {
	luma := byte(0x21)
	if h.Type&^jpegRestart == jpeg420 {
		luma = 0x22
	}
	b = append(b, 0xff, markSOI)
	b = append(b, 0xff, markAPP0, 0, 16, 'J', 'F', 'I', 'F', 0, 1, 2, 0, 0, 1, 0, 1, 0, 0)
	for i := range 2 {
		b = append(b, 0xff, markDQT, 0, 67, byte(i))
		b = append(b, quant[64*i:64*i+64]...)
	}
	b = append(b, 0xff, markSOF0, 0, 17, 8, byte(height>>8), byte(height), byte(width>>8), byte(width), 3,
		1, luma, 0, 2, 0x11, 1, 3, 0x11, 1)
	n := 2
	for _, table := range huffman {
		n += len(table)
	}
	b = append(b, 0xff, markDHT, byte(n>>8), byte(n))
	for _, table := range huffman {
		b = append(b, table...)
	}
	if h.Restart != 0 {
		b = append(b, 0xff, markDRI, 0, 4, byte(h.Restart>>8), byte(h.Restart))
	}
	return append(b, 0xff, markSOS, 0, 12, 3, 1, 0x00, 2, 0x11, 3, 0x11, 0, 63, 0)
}
