// SPDX-License-Identifier: Apache-2.0

package mp4

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	amp4 "github.com/abema/go-mp4"
	"github.com/bluenviron/mediacommon/v2/pkg/formats/fmp4/seekablebuffer"
)

var be = binary.BigEndian

// errMalformed means that a box is not what the format asks for.
var errMalformed = errors.New("malformed")

// A layout lays out boxes in memory, one after another or within each other. Its err is the first error.
type layout struct {
	buffer seekablebuffer.Buffer
	lead   int // bytes of buffer before the boxes
	boxes  *amp4.Writer
	err    error
}

func newLayout() *layout {
	l := &layout{}
	l.reset(0)
	return l
}

// reset empties the layout, which keeps its memory. The boxes will begin lead bytes, less than a page, after its beginning.
func (l *layout) reset(lead int) {
	l.buffer.Reset()
	l.write(make([]byte, lead))
	l.lead, l.boxes, l.err = lead, amp4.NewWriter(&l.buffer), nil
}

func (l *layout) len() int      { return l.buffer.Len() - l.lead }
func (l *layout) bytes() []byte { return l.buffer.Bytes()[l.lead:] }

// write writes bytes. It does not fail, since it writes to memory.
func (l *layout) write(b []byte) { _, _ = l.buffer.Write(b) }

func (l *layout) failed(err error) {
	if l.err == nil {
		l.err = err
	}
}

// begin begins a box, which contains all that is written before the call of end.
func (l *layout) begin(typ amp4.BoxType) {
	_, err := l.boxes.StartBox(&amp4.BoxInfo{Type: typ})
	l.failed(err)
}

func (l *layout) end() {
	_, err := l.boxes.EndBox()
	l.failed(err)
}

// box writes a box without others in it.
func (l *layout) box(b amp4.IImmutableBox) {
	l.begin(b.GetType())
	_, err := amp4.Marshal(l.boxes, b, amp4.Context{})
	l.failed(err)
	l.end()
}

// uint32s writes numbers of 32 bits.
func (l *layout) uint32s(list ...uint32) {
	var b [4]byte
	for _, n := range list {
		be.PutUint32(b[:], n)
		l.write(b[:])
	}
}

// header decodes the header of a box: its type, its length and the size of the box. It reports false if b is too short,
// and if the size is impossible or open, as in a file that ends with zeros.
func header(b []byte) (typ amp4.BoxType, length, size int64, ok bool) {
	if len(b) < amp4.SmallHeaderSize {
		return typ, 0, 0, false
	}
	copy(typ[:], b[4:])
	length, size = amp4.SmallHeaderSize, int64(be.Uint32(b))
	if size == 1 {
		if len(b) < amp4.LargeHeaderSize {
			return typ, 0, 0, false
		}
		length, size = amp4.LargeHeaderSize, int64(be.Uint64(b[8:]))
	}
	return typ, length, size, size >= length
}

// walk calls f for each box in b, and after a container for the boxes in it, down to a depth.
func walk(b []byte, depth int, f func(typ amp4.BoxType, payload []byte) error) error {
	for len(b) > 0 {
		typ, length, size, ok := header(b)
		if !ok || size > int64(len(b)) {
			return errMalformed
		}
		payload := b[length:size]
		if err := f(typ, payload); err != nil {
			return fmt.Errorf("%s: %w", typ, err)
		}
		switch typ {
		case amp4.BoxTypeMoov(), amp4.BoxTypeMvex(), amp4.BoxTypeTraf():
			if depth > 0 {
				if err := walk(payload, depth-1, f); err != nil {
					return err
				}
			}
		}
		b = b[size:]
	}
	return nil
}

// unmarshal decodes the payload of a box.
func unmarshal(payload []byte, box amp4.IBox) error {
	_, err := amp4.Unmarshal(bytes.NewReader(payload), uint64(len(payload)), box, amp4.Context{})
	return err
}

// rewrite returns ftyp and moov with each box as edit leaves it, which is called before the box is laid out, and leaves
// it out if it returns false.
func rewrite(head []byte, edit func(l *layout, box amp4.IBox) bool) ([]byte, error) {
	const depth = 16 // more than any box has; each level costs memory
	in, l := bytes.NewReader(head), newLayout()
	_, err := amp4.ReadBoxStructure(in, func(h *amp4.ReadHandle) (any, error) {
		if !h.BoxInfo.IsSupportedType() {
			return nil, l.boxes.CopyBox(in, &h.BoxInfo)
		}
		if len(h.Path) > depth {
			return nil, errMalformed
		}
		box, _, err := h.ReadPayload()
		if err != nil || !edit(l, box) {
			return nil, err
		}
		l.begin(h.BoxInfo.Type)
		if _, err = amp4.Marshal(l.boxes, box, h.BoxInfo.Context); err == nil {
			_, err = h.Expand()
		}
		l.end()
		return nil, err
	})
	if err == nil {
		err = l.err
	}
	if err != nil {
		return nil, fmt.Errorf("mp4: the moov box: %w", err)
	}
	return l.bytes(), nil
}
