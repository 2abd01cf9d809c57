// SPDX-License-Identifier: Apache-2.0

package frames

import (
	"fmt"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// Values of frameHeader.by: who computed a frame's CRC.
const (
	crcNone   = 0
	crcSender = 1
	crcFPGA   = 2 // the source of the frame: for a camera's frames, the FPGA
)

// A frameHeader is sent ahead of a frame's pixels.
type frameHeader struct {
	sequence uint64
	books    books
	times    pipeline.Times
	sent     time.Time
	flags    pipeline.FrameFlags
	by       uint8 // who computed crc
	crc      uint32
	size     uint64 // of the pixels, in bytes
	group    uint64 // number of the frame's group; 0: none, or a version without
}

// frameHeaderSize is the size of the largest encoded frameHeader in bytes. UCX supports at least 256.
const frameHeaderSize = 8 + 24 + 6*8 + 8 + 4 + 4 + 4 + 4 + 8 + 8

func (h *frameHeader) append(b []byte, version uint16) []byte {
	b = le.AppendUint64(b, h.sequence)
	b = h.books.append(b)
	for _, t := range []*time.Time{&h.times.ExposureStart, &h.times.ExposureEnd, &h.times.Captured, &h.times.Processed, &h.times.Replayed, &h.sent} {
		b = appendTime(b, *t)
	}
	b = le.AppendUint64(b, uint64(h.times.Uncertainty))
	b = le.AppendUint32(b, uint32(h.flags))
	b = le.AppendUint32(b, uint32(h.by))
	b = le.AppendUint32(b, h.crc)
	b = le.AppendUint32(b, 0)
	b = le.AppendUint64(b, h.size)
	if version >= withGroups {
		b = le.AppendUint64(b, h.group)
	}
	return b
}

func parseFrameHeader(b []byte, version uint16) (h frameHeader, err error) {
	r := reader{rest: b}
	h.sequence = r.word64()
	h.books = books{r.word64(), r.word64(), r.word64()}
	for _, t := range []*time.Time{&h.times.ExposureStart, &h.times.ExposureEnd, &h.times.Captured, &h.times.Processed, &h.times.Replayed, &h.sent} {
		*t = r.time()
	}
	h.times.Uncertainty = time.Duration(r.word64())
	h.flags = pipeline.FrameFlags(r.word32())
	by := r.word32()
	h.crc = r.word32()
	reserved := r.word32()
	h.size = r.word64()
	if version >= withGroups {
		h.group = r.word64()
	}
	if err := r.checkEnd("frame"); err != nil {
		return h, err
	}
	if by > crcFPGA || reserved != 0 || h.size == 0 || h.size > maxFrame || h.times.Uncertainty < 0 {
		return h, fmt.Errorf("%w: frame %d of %d bytes", errWire, h.sequence, h.size)
	}
	h.by = uint8(by)
	return h, nil
}
