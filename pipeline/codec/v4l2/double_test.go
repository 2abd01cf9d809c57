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
	coded    []buffer            // finished buffers of coded data
	pictures []buffer
	taken    int
	fresh    bool   // started, and no parameter sets delivered yet
	span     uint32 // quantization range, if the interface is single-planar
	mapped   int    // number of mapped buffers
	on       int
	closed   bool
}

func (d *double) kinds() (coded, picture uint32) {
	if d.multi {
		return multiCoded, multiPicture
	}
	return singleCoded, singlePicture
}

func (d *double) ioctl(request uintptr, at unsafe.Pointer) error {
	if request == d.cannot {
		return unix.EIO
	}
	switch request {
	case queryCapabilities:
		c := (*capability)(at)
		can := uint32(canStream | canSingle)
		if d.multi {
			can = canStream | canMulti
		}
		if c.capabilities = can; !d.old {
			c.capabilities, c.device = hasDevice, can
		}
	case listFormats:
		f := (*formatDescription)(at)
		if int(f.index) >= len(d.offers) {
			return unix.EINVAL
		}
		f.pixels = d.offers[f.index]
	case setFormat:
		d.setFormat((*format)(at))
	case makeBuffers:
		d.makeBuffers((*requestBuffers)(at))
	case queryBuffer:
		d.queryBuffer((*buffer)(at))
	case enqueue:
		return d.enqueue(*(*buffer)(at))
	case dequeue:
		return d.dequeue((*buffer)(at))
	case streamOn:
		d.on++
		d.fresh = true
	case streamOff:
		d.on--
	case setControls:
		k := (*controls)(at)
		c := *(**control)(unsafe.Pointer(&k.list))
		if k.count != 1 || slices.Contains(d.without, c.id) {
			return unix.EINVAL
		}
		d.controls[c.id] = int(int32(c.value[0]))
		if c.id == controlForceOld {
			d.controls[controlForceKey] = 1
		}
	case encoderCommand:
		d.coded = append(d.coded, buffer{index: d.takeBuffer(), flags: flagLast})
	case setSelection:
		return nil
	default:
		return unix.ENOTTY
	}
	return nil
}

func (d *double) setFormat(f *format) {
	coded, _ := d.kinds()
	if f.kind == coded { // one plane of the requested size
		return
	}
	height, pixels := 0, uint32(0)
	if d.multi {
		height, pixels, d.width = int(f.multi().height), f.multi().pixels, int(f.multi().width)
	} else {
		height, pixels, d.width = int(f.single().height), f.single().pixels, int(f.single().width)
	}
	d.height = (height + d.lines - 1) / d.lines * d.lines
	d.stride, d.pixels = (d.width+63)&^63, pixels
	if !d.multi {
		s := f.single()
		if s.private != hasPrivate { // like the kernel
			s.matrix, s.quantization = 0, 0
		}
		d.span = s.quantization
		s.height, s.stride, s.size = uint32(d.height), uint32(d.stride), uint32(d.stride*d.height*3/2)
		return
	}
	m := f.multi()
	m.height = uint32(d.height)
	whole := uint32(d.stride * d.height)
	one := func(size, stride uint32) planeFormat { return planeFormat{size: size, stride: stride} }
	list := []planeFormat{one(whole*3/2, uint32(d.stride))}
	switch letters(pixels) {
	case "YM12":
		list = []planeFormat{one(whole, uint32(d.stride)), one(whole/4, uint32(d.stride/2)), one(whole/4, uint32(d.stride/2))}
	case "NM12":
		list = []planeFormat{one(whole, uint32(d.stride)), one(whole/2, uint32(d.stride))}
	}
	m.count = uint8(copy(m.planes[:], list))
}

// planes returns the sizes of a queue's planes.
func (d *double) planes(kind uint32) []int {
	whole := d.stride * d.height
	coded, _ := d.kinds()
	switch {
	case kind == coded:
		return []int{1 << 20}
	case d.multi && letters(d.pixels) == "YM12":
		return []int{whole, whole / 4, whole / 4}
	case d.multi && letters(d.pixels) == "NM12":
		return []int{whole, whole / 2}
	}
	return []int{whole * 3 / 2}
}

func (d *double) makeBuffers(r *requestBuffers) {
	delete(d.memory, r.kind)
	for range r.count {
		for _, n := range d.planes(r.kind) {
			d.memory[r.kind] = append(d.memory[r.kind], make([]byte, n))
		}
	}
}

// queryBuffer returns mmap offsets that encode the number of the memory and the type of the queue.
func (d *double) queryBuffer(b *buffer) {
	sizes := d.planes(b.kind)
	first := int(b.index) * len(sizes)
	if !d.multi {
		b.at, b.length = uint64(first)<<8|uint64(b.kind), uint32(sizes[0])
		return
	}
	list := (*[maxPlanes]plane)(*(*unsafe.Pointer)(unsafe.Pointer(&b.at)))
	for i, n := range sizes {
		list[i].at, list[i].length = uint64(first+i)<<8|uint64(b.kind), uint32(n)
	}
}

func (d *double) mmap(_ planeOf, offset int64, length int) ([]byte, error) {
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

func (d *double) enqueue(b buffer) error {
	coded, _ := d.kinds()
	if b.kind == coded {
		d.free = append(d.free, b.index)
		return nil
	}
	d.pictures = append(d.pictures, b)
	if d.taken++; d.taken == d.hangs {
		return nil
	}
	done := buffer{index: d.takeBuffer(), seconds: b.seconds, microseconds: b.microseconds}
	if b.flags&flagStamp == 0 {
		done.seconds, done.microseconds = 0, 0
	}
	unit := d.unit(b)
	if d.apart {
		d.coded = append(d.coded, buffer{index: done.index})
		if n := bytes.LastIndex(unit, unitStart); n > 0 {
			done.used = uint32(copy(d.memory[coded][done.index], unit[:n]))
			d.coded[len(d.coded)-1] = done
			unit = unit[n:]
		}
		done.index = d.takeBuffer()
	}
	if d.taken == d.fails {
		done.flags = flagError
	}
	done.used = uint32(copy(d.memory[coded][done.index], unit))
	d.coded = append(d.coded, done)
	return nil
}

// unit returns the encoded unit of a picture.
func (d *double) unit(b buffer) []byte {
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
	n := len(d.planes(b.kind))
	_, picture := d.kinds()
	sum := crc32.ChecksumIEEE(d.picture(d.memory[picture][int(b.index)*n:][:n]))
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
	switch letters(d.pixels) {
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

func (d *double) dequeue(b *buffer) error {
	coded, _ := d.kinds()
	list := &d.pictures
	if b.kind == coded {
		list = &d.coded
	}
	if len(*list) == 0 {
		return unix.EAGAIN
	}
	done := (*list)[0]
	*list = (*list)[1:]
	b.index, b.flags, b.used, b.seconds, b.microseconds = done.index, done.flags, done.used, done.seconds, done.microseconds
	if d.multi {
		(*[maxPlanes]plane)(*(*unsafe.Pointer)(unsafe.Pointer(&b.at)))[0].used = done.used
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
