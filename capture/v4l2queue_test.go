// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/videodev"
)

func (d *videoDouble) queue(request uintptr, at unsafe.Pointer) error {
	switch request {
	case videodev.MakeBuffers:
		return d.makeBuffers((*videodev.RequestBuffers)(at))
	case videodev.QueryBuffer:
		b := (*videodev.Buffer)(at)
		if int(b.Index) >= len(d.buffers) || b.Type != d.kind() {
			return unix.EINVAL
		}
		if !d.multi {
			b.At, b.Length = uint64(b.Index)<<16, uint32(d.sizes()[0])
			return nil
		}
		for i, n := range d.sizes() {
			d.planesOf(b)[i].At, d.planesOf(b)[i].Length = uint64(b.Index)<<16|uint64(i)<<12, uint32(n)
		}
	case videodev.Enqueue:
		return d.enqueue((*videodev.Buffer)(at))
	case videodev.Dequeue:
		return d.dequeue((*videodev.Buffer)(at))
	case videodev.StreamOn:
		if len(d.buffers) == 0 || *(*int32)(at) != int32(d.kind()) {
			return unix.EINVAL
		}
		if d.sensor && d.off {
			return unix.EPIPE
		}
		if d.sensor && d.pads[-1] != d.pads[0] {
			return unix.EPIPE
		}
		if !d.streams {
			d.sequence = 0
		}
		d.streams = true
	case videodev.StreamOff:
		d.streams, d.waiting, d.done, d.used = false, nil, nil, nil
		for i := range d.buffers {
			d.buffers[i].queued = false
		}
	default:
		return unix.ENOTTY
	}
	return nil
}

func (d *videoDouble) makeBuffers(r *videodev.RequestBuffers) error {
	if r.Type != d.kind() || r.Memory == videodev.MemoryUser && !d.user {
		return unix.EINVAL
	}
	if d.streams || slices.ContainsFunc(d.buffers, func(b doubleBuffer) bool { return b.mapped > 0 }) {
		return unix.EBUSY
	}
	d.release()
	if r.Count == 0 {
		return nil
	}
	r.Count, d.memory = max(r.Count, d.least), r.Memory
	for range r.Count {
		b := doubleBuffer{}
		for _, n := range d.sizes() {
			b.own = append(b.own, make([]byte, n))
		}
		d.buffers = append(d.buffers, b)
	}
	return nil
}

func (d *videoDouble) planesOf(b *videodev.Buffer) *[videodev.MaxPlanes]videodev.Plane {
	return (*[videodev.MaxPlanes]videodev.Plane)(*(*unsafe.Pointer)(unsafe.Pointer(&b.At)))
}

func (d *videoDouble) enqueue(b *videodev.Buffer) error {
	if int(b.Index) >= len(d.buffers) || b.Type != d.kind() || b.Memory != d.memory || d.multi && int(b.Length) < len(d.sizes()) {
		return unix.EINVAL
	}
	to := &d.buffers[b.Index]
	if to.queued {
		return unix.EINVAL
	}
	if d.memory == videodev.MemoryUser {
		if d.refuses != 0 {
			return d.refuses
		}
		to.user = nil
		for i, n := range d.sizes() {
			at, length := &b.At, b.Length
			if d.multi {
				at, length = &d.planesOf(b)[i].At, d.planesOf(b)[i].Length
			}
			if *at == 0 || i == 0 && *at%4096 != 0 || int(length) < n {
				return unix.EINVAL
			}
			to.user = append(to.user, unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(at))), n))
		}
	}
	to.queued = true
	d.waiting = append(d.waiting, int(b.Index))
	return nil
}

func (d *videoDouble) dequeue(b *videodev.Buffer) error {
	switch {
	case b.Type != d.kind() || b.Memory != d.memory || !d.streams:
		return unix.EINVAL
	case d.broken:
		return unix.EIO
	case len(d.done) == 0:
		return unix.EAGAIN
	}
	planes := b.At
	length := b.Length
	*b = d.done[0]
	if d.multi {
		b.At, b.Length = planes, length
		*d.planesOf(b) = d.used[0]
	}
	d.done, d.used = d.done[1:], d.used[1:]
	d.buffers[b.Index].queued = false
	return nil
}

// frame fills the next buffer, if the camera has queued one, and reports whether it did. change may change what is
// returned with it. The pixels are those of pattern with the frame's number.
func (d *videoDouble) frame(change func(*videodev.Buffer)) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.streams || len(d.waiting) == 0 || d.path == "" {
		return false
	}
	i := d.waiting[0]
	d.waiting = d.waiting[1:]
	b := videodev.Buffer{Index: uint32(i), Type: d.kind(), Memory: d.memory, Sequence: d.sequence, Flags: d.stamps}
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	b.Seconds, b.Microseconds = now.Sec, now.Nsec/1000
	planes := d.buffers[i].own
	if d.memory == videodev.MemoryUser {
		planes = d.buffers[i].user
	}
	var used [videodev.MaxPlanes]videodev.Plane
	for k, p := range planes {
		pattern(p[d.offset:], int(d.sequence)+k)
		used[k].Used, used[k].Length, used[k].Offset = uint32(len(p)), uint32(len(p)), d.offset
	}
	b.Used = uint32(len(planes[0]))
	if change != nil {
		change(&b)
		used[0].Used = b.Used
	}
	d.sequence = b.Sequence + 1
	d.done, d.used = append(d.done, b), append(d.used, used)
	d.wake.Set()
	return true
}

// pattern fills bytes with a pattern that shows number and place.
func pattern(b []byte, number int) {
	for i := range b {
		b[i] = byte(i*7 + i/251 + number*13)
	}
}
