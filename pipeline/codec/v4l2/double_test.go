// SPDX-License-Identifier: Apache-2.0

package v4l2

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/videodev"
)

// A double is a simulated H.264 encoder that behaves as dev-encoder.rst demands, one picture at a time. Its units
// contain the CRC-32 of the picture instead of slices.
type double struct {
	multi   bool
	offers  []uint32 // formats of pictures
	lines   int      // the height is rounded up to a multiple of this
	without []uint32 // controls that it does not have
	sets    bool     // parameter sets with every key frame, not only the first
	fails   int      // number of the picture that it cannot encode
	hangs   int      // number of the picture at which it stops responding
	cannot  uintptr  // request that fails
	apart   bool     // it delivers empty buffers, and parameter sets in a separate buffer
	old     bool     // it does not report capabilities of the device file, and forces key frames through the older control

	controls map[uint32]int
	width    int
	height   int
	stride   int
	pixels   uint32
	memory   map[uint32][][]byte // of the queues' buffers, by type
	free     []uint32            // buffers for coded data
	coded    []videodev.Buffer   // finished buffers of coded data
	pictures []videodev.Buffer
	taken    int
	fresh    bool   // started, and no parameter sets delivered yet
	span     uint32 // quantization range, if the interface is single-planar
	mapped   int    // number of mapped buffers
	on       int
	closed   bool
}

func (d *double) kinds() (coded, picture uint32) {
	if d.multi {
		return videodev.CaptureMulti, videodev.OutputMulti
	}
	return videodev.Capture, videodev.Output
}

func (d *double) Ioctl(request uintptr, at unsafe.Pointer) error {
	if request == d.cannot {
		return unix.EIO
	}
	switch request {
	case videodev.QueryCapabilities:
		c := (*videodev.Capability)(at)
		can := uint32(videodev.CanStream | videodev.CanSingle)
		if d.multi {
			can = videodev.CanStream | videodev.CanMulti
		}
		if c.Capabilities = can; !d.old {
			c.Capabilities, c.Device = videodev.HasDevice, can
		}
	case videodev.ListFormats:
		f := (*videodev.FormatDescription)(at)
		if int(f.Index) >= len(d.offers) {
			return unix.EINVAL
		}
		f.Pixels = d.offers[f.Index]
	case videodev.SetFormat:
		d.setFormat((*videodev.Format)(at))
	case videodev.MakeBuffers:
		d.makeBuffers((*videodev.RequestBuffers)(at))
	case videodev.QueryBuffer:
		d.queryBuffer((*videodev.Buffer)(at))
	case videodev.Enqueue:
		return d.enqueue(*(*videodev.Buffer)(at))
	case videodev.Dequeue:
		return d.dequeue((*videodev.Buffer)(at))
	case videodev.StreamOn:
		d.on++
		d.fresh = true
	case videodev.StreamOff:
		d.on--
	case videodev.SetControls:
		k := (*videodev.ControlList)(at)
		c := *(**videodev.Control)(unsafe.Pointer(&k.List))
		if k.Count != 1 || slices.Contains(d.without, c.ID) {
			return unix.EINVAL
		}
		d.controls[c.ID] = int(int32(c.Value[0]))
		if c.ID == controlForceOld {
			d.controls[controlForceKey] = 1
		}
	case videodev.EncoderCommand:
		d.coded = append(d.coded, videodev.Buffer{Index: d.takeBuffer(), Flags: videodev.FlagLast})
	case videodev.SetSelection:
		return nil
	default:
		return unix.ENOTTY
	}
	return nil
}

func (d *double) setFormat(f *videodev.Format) {
	coded, _ := d.kinds()
	if f.Type == coded { // one plane of the requested size
		return
	}
	height, pixels := 0, uint32(0)
	if d.multi {
		height, pixels, d.width = int(f.Multi().Height), f.Multi().Pixels, int(f.Multi().Width)
	} else {
		height, pixels, d.width = int(f.Single().Height), f.Single().Pixels, int(f.Single().Width)
	}
	d.height = (height + d.lines - 1) / d.lines * d.lines
	d.stride, d.pixels = (d.width+63)&^63, pixels
	if !d.multi {
		s := f.Single()
		if s.Private != videodev.HasPrivate { // like the kernel
			s.Matrix, s.Quantization = 0, 0
		}
		d.span = s.Quantization
		s.Height, s.Stride, s.Size = uint32(d.height), uint32(d.stride), uint32(d.stride*d.height*3/2)
		return
	}
	m := f.Multi()
	m.Height = uint32(d.height)
	whole := uint32(d.stride * d.height)
	one := func(size, stride uint32) videodev.PlaneFormat {
		return videodev.PlaneFormat{Size: size, Stride: stride}
	}
	list := []videodev.PlaneFormat{one(whole*3/2, uint32(d.stride))}
	switch videodev.Letters(pixels) {
	case "YM12":
		list = []videodev.PlaneFormat{one(whole, uint32(d.stride)), one(whole/4, uint32(d.stride/2)), one(whole/4, uint32(d.stride/2))}
	case "NM12":
		list = []videodev.PlaneFormat{one(whole, uint32(d.stride)), one(whole/2, uint32(d.stride))}
	}
	m.Count = uint8(copy(m.Planes[:], list))
}

// planes returns the sizes of a queue's planes.
func (d *double) planes(kind uint32) []int {
	whole := d.stride * d.height
	coded, _ := d.kinds()
	switch {
	case kind == coded:
		return []int{1 << 20}
	case d.multi && videodev.Letters(d.pixels) == "YM12":
		return []int{whole, whole / 4, whole / 4}
	case d.multi && videodev.Letters(d.pixels) == "NM12":
		return []int{whole, whole / 2}
	}
	return []int{whole * 3 / 2}
}

func (d *double) makeBuffers(r *videodev.RequestBuffers) {
	delete(d.memory, r.Type)
	for range r.Count {
		for _, n := range d.planes(r.Type) {
			d.memory[r.Type] = append(d.memory[r.Type], make([]byte, n))
		}
	}
}

// videodev.QueryBuffer returns mmap offsets that encode the number of the memory and the type of the queue.
func (d *double) queryBuffer(b *videodev.Buffer) {
	sizes := d.planes(b.Type)
	first := int(b.Index) * len(sizes)
	if !d.multi {
		b.At, b.Length = uint64(first)<<8|uint64(b.Type), uint32(sizes[0])
		return
	}
	list := (*[videodev.MaxPlanes]videodev.Plane)(*(*unsafe.Pointer)(unsafe.Pointer(&b.At)))
	for i, n := range sizes {
		list[i].At, list[i].Length = uint64(first+i)<<8|uint64(b.Type), uint32(n)
	}
}

func (d *double) mmap(_ videodev.PlaneOf, offset int64, length int) ([]byte, error) {
	d.mapped++
	return d.memory[uint32(offset&0xff)][offset>>8][:length], nil
}

func (d *double) munmap([]byte) error {
	d.mapped--
	return nil
}

func (d *double) sync(int, []byte) error { return nil }

func (d *double) nvidia() bool { return false }

func (d *double) takeBuffer() uint32 {
	i := d.free[0]
	d.free = d.free[1:]
	return i
}

func (d *double) enqueue(b videodev.Buffer) error {
	coded, _ := d.kinds()
	if b.Type == coded {
		d.free = append(d.free, b.Index)
		return nil
	}
	d.pictures = append(d.pictures, b)
	if d.taken++; d.taken == d.hangs {
		return nil
	}
	done := videodev.Buffer{Index: d.takeBuffer(), Seconds: b.Seconds, Microseconds: b.Microseconds}
	if b.Flags&videodev.FlagStampCopy == 0 {
		done.Seconds, done.Microseconds = 0, 0
	}
	unit := d.unit(b)
	if d.apart {
		d.coded = append(d.coded, videodev.Buffer{Index: done.Index})
		if n := bytes.LastIndex(unit, unitStart); n > 0 {
			done.Used = uint32(copy(d.memory[coded][done.Index], unit[:n]))
			d.coded[len(d.coded)-1] = done
			unit = unit[n:]
		}
		done.Index = d.takeBuffer()
	}
	if d.taken == d.fails {
		done.Flags = videodev.FlagError
	}
	done.Used = uint32(copy(d.memory[coded][done.Index], unit))
	d.coded = append(d.coded, done)
	return nil
}

// unit returns the encoded unit of a picture.
func (d *double) unit(b videodev.Buffer) []byte {
	key := d.controls[controlForceKey] == 1
	d.controls[controlForceKey] = 0
	unit := []byte{0, 0, 0, 1, 0x41}
	if key {
		unit[4] = 0x65
		if d.sets || d.fresh {
			d.fresh = false
			unit = append([]byte{0, 0, 0, 1, 0x67, 66, 192, 30, 0, 0, 0, 1, 0x68, 1, 2, 3}, unit...)
		}
	}
	n := len(d.planes(b.Type))
	_, picture := d.kinds()
	sum := crc32.ChecksumIEEE(d.picture(d.memory[picture][int(b.Index)*n:][:n]))
	return append(unit, byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24))
}

// picture returns the contents of a buffer as I420.
func (d *double) picture(planes [][]byte) (out []byte) {
	rest := planes[0][d.stride*d.height:]
	for y := range d.height {
		out = append(out, planes[0][y*d.stride:][:d.width]...)
	}
	lines := func(b []byte, stride, width, step, from int) {
		for y := range d.height / 2 {
			for x := range width {
				out = append(out, b[y*stride+x*step+from])
			}
		}
	}
	half := d.width / 2
	switch videodev.Letters(d.pixels) {
	case "YU12":
		lines(rest, d.stride/2, half, 1, 0)
		lines(rest[len(rest)/2:], d.stride/2, half, 1, 0)
	case "YM12":
		lines(planes[1], d.stride/2, half, 1, 0)
		lines(planes[2], d.stride/2, half, 1, 0)
	case "NV12", "NM12":
		if len(planes) > 1 {
			rest = planes[1]
		}
		lines(rest, d.stride, half, 2, 0)
		lines(rest, d.stride, half, 2, 1)
	}
	return out
}

func (d *double) dequeue(b *videodev.Buffer) error {
	coded, _ := d.kinds()
	list := &d.pictures
	if b.Type == coded {
		list = &d.coded
	}
	if len(*list) == 0 {
		return unix.EAGAIN
	}
	done := (*list)[0]
	*list = (*list)[1:]
	b.Index, b.Flags, b.Used, b.Seconds, b.Microseconds = done.Index, done.Flags, done.Used, done.Seconds, done.Microseconds
	if d.multi {
		(*[videodev.MaxPlanes]videodev.Plane)(*(*unsafe.Pointer)(unsafe.Pointer(&b.At)))[0].Used = done.Used
	}
	return nil
}

func (d *double) wait(bool, time.Duration) error { return errHangs }

var errHangs = fmt.Errorf("the device has returned nothing for %v", patience)

func (d *double) close() error {
	d.closed = true
	return nil
}

// leaks reports whether the double has not been closed cleanly.
func (d *double) leaks() bool { return d.mapped != 0 || d.on != 0 || !d.closed || len(d.memory) != 0 }

var unitStart = []byte{0, 0, 0, 1}

func ends(unit []byte, picture []byte) bool {
	sum := crc32.ChecksumIEEE(picture)
	return bytes.HasSuffix(unit, []byte{byte(sum), byte(sum >> 8), byte(sum >> 16), byte(sum >> 24)})
}
