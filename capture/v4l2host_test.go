// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"slices"
	"testing/fstest"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline/videodev"
)

func (d *videoDouble) open(path string) (videoDevice, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	what := map[string]int{d.path: doubleVideo, "/dev/media0": doubleGraph, "/dev/v4l-subdev0": doubleChip}[path]
	if what == 0 || d.path == "" {
		return nil, unix.ENOENT
	}
	d.opened++
	return &doubleFile{d: d, what: what, session: d.place}, nil
}

func (d *videoDouble) Number(path string) (videodev.Number, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if path == d.path && path != "" {
		return videodev.Number{Major: 81, Minor: 0}, nil
	}
	return videodev.Number{}, unix.ENOENT
}

func (d *videoDouble) File(n videodev.Number) (string, error) {
	if n.Minor == 2 {
		return "/dev/v4l-subdev0", nil
	}
	return "", videodev.ErrNoDevice
}

func (d *videoDouble) Media(videodev.Number) (string, error) {
	if !d.sensor {
		return "", videodev.ErrNoDevice
	}
	return "/dev/media0", nil
}

func (d *videoDouble) Identify(videodev.Number) (videodev.Identity, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return videodev.Identity{Device: d.place, USB: d.serial, Name: "double"}, nil
}

func (d *videoDouble) Find(id videodev.Identity) (string, error) {
	now, _ := d.Identify(videodev.Number{})
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.path == "" || !now.Same(id) {
		return "", videodev.ErrNoDevice
	}
	return d.path, nil
}

func (d *videoDouble) Holders(videodev.Number) ([]videodev.Holder, bool) { return d.holders, !d.hidden }

// machine returns the machine that has the camera.
func (d *videoDouble) machine() v4l2Machine {
	return v4l2Machine{d, d.open, fstest.MapFS{"proc/device-tree/compatible": {Data: []byte(d.soc + "\x00")}}}
}

// unplug removes the device, as a driver does: everything fails with ENODEV until it is closed and plugged in.
func (d *videoDouble) unplug() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.path, d.place, d.parted = "", d.place+"x", time.Now()
	d.wake.Set()
}

// plug brings the device back, under another name.
func (d *videoDouble) plug(path string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.path, d.buffers, d.waiting, d.done, d.used, d.streams, d.broken = path, nil, nil, nil, nil, false, false
}

func (d *videoDouble) subdevice(request uintptr, at unsafe.Pointer) error {
	if request != videodev.GetSubdeviceFormat {
		return unix.ENOTTY
	}
	f := (*videodev.SubdeviceFormat)(at)
	p := d.pads[-1]
	f.Code, f.Width, f.Height = p.Code, p.Width, p.Height
	return nil
}

func (d *videoDouble) find(id uint32, sensor bool) *doubleControl {
	for _, c := range d.controls {
		if c.id == id && c.sensor == sensor {
			return c
		}
	}
	return nil
}

func (d *videoDouble) control(request uintptr, at unsafe.Pointer, sensor bool) error {
	switch request {
	case videodev.DescribeControl:
		q := (*videodev.QueryControl)(at)
		var next *doubleControl
		for _, c := range d.controls {
			if c.sensor == sensor && c.id > q.ID&^0xc0000000 && (next == nil || c.id < next.id) {
				next = c
			}
		}
		if next == nil {
			return unix.EINVAL
		}
		*q = videodev.QueryControl{ID: next.id, Type: next.kind, Minimum: next.min, Maximum: next.max, Step: next.step, Flags: next.flags, ElementSize: 4, Elements: 1}
		q.Elements = max(uint32(len(next.array)), 1)
		copy(q.Name[:], next.name)
	case videodev.QueryMenuItem:
		m := (*videodev.QueryMenu)(at)
		c := d.find(m.ID, sensor)
		if c == nil || int(m.Index) >= len(c.items) || c.items[m.Index] == "" {
			return unix.EINVAL
		}
		copy(m.Name[:], c.items[m.Index])
	default:
		return d.values(request == videodev.SetControls, (*videodev.ControlList)(at), sensor)
	}
	return nil
}

func (d *videoDouble) values(set bool, l *videodev.ControlList, sensor bool) error {
	list := unsafe.Slice(*(**videodev.Control)(unsafe.Pointer(&l.List)), l.Count)
	var numbers []uint32
	for i := range list {
		v := &list[i]
		c := d.find(v.ID, sensor)
		l.Failed = uint32(i)
		if c == nil {
			return unix.EINVAL
		}
		numbers = append(numbers, c.id)
		value := int64(int32(v.Value[0]))
		if c.kind == 5 {
			value = int64(uint64(v.Value[0]) | uint64(v.Value[1])<<32)
		}
		switch {
		case len(c.array) > 0 && (set || int(v.Size) < 4*len(c.array)):
			return unix.ENOSPC
		case len(c.array) > 0:
			at := uint64(v.Value[0]) | uint64(v.Value[1])<<32
			copy(unsafe.Slice((*uint32)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), len(c.array)), c.array)
		case set && c.flags&4 != 0:
			return unix.EACCES
		case set && (value < c.min || value > c.max || c.step > 1 && uint64(value-c.min)%c.step != 0):
			return unix.ERANGE
		case set:
			c.value = value
		default:
			v.Value = [2]uint32{uint32(c.value), uint32(uint64(c.value) >> 32)}
		}
	}
	if set {
		d.settings = append(d.settings, numbers)
	}
	return nil
}

// value returns the value of a control.
func (d *videoDouble) value(id uint32) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.controls {
		if c.id == id {
			return c.value
		}
	}
	panic(fmt.Sprintf("no control %#x", id))
}

// topology answers MEDIA_IOC_G_TOPOLOGY: a sensor (entity 1, pad 11), a bridge (entity 2, pads 21 and 22), the video device
// (entity 3, pad 31), and their device files (interfaces 101 and 103).
func (d *videoDouble) topology(request uintptr, at unsafe.Pointer) error {
	type part struct{ count, _, at, high uint32 }
	const get = 0xc0487c04
	if request != get {
		return unix.ENOTTY
	}
	t := (*struct {
		version uint64
		parts   [4]part
	})(at)
	enabled := uint32(1)
	if d.off {
		enabled = 0
	}
	name := func(s string) (words []uint32) {
		b := [64]byte{}
		copy(b[:], s)
		return append(words, unsafe.Slice((*uint32)(unsafe.Pointer(&b)), 16)...)
	}
	entity := func(id uint32, s string, function uint32) []uint32 {
		return append(append([]uint32{id}, name(s)...), function, 0, 0, 0, 0, 0, 0)
	}
	file := func(id, kind, minor uint32) []uint32 {
		return append([]uint32{id, kind, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 81, minor}, make([]uint32, 14)...)
	}
	pad := func(id, entity, flags, index uint32) []uint32 { return []uint32{id, entity, flags, index, 0, 0, 0, 0} }
	link := func(id, from, to, flags uint32) []uint32 { return []uint32{id, from, to, flags, 0, 0, 0, 0, 0, 0} }
	lists := [4][][]uint32{
		{entity(1, "imx219 1-0010", 0x20001), entity(2, "bridge", 0x5002), entity(3, "vi-output", 0x10001)},
		{file(101, 0x203, 2), file(103, 0x200, 0)},
		{pad(11, 1, 2, 0), pad(21, 2, 1, 0), pad(22, 2, 2, 1), pad(31, 3, 1, 0)},
		{link(1, 11, 21, enabled), link(2, 22, 31, 3), link(3, 101, 1, 1<<28), link(4, 103, 3, 1<<28)},
	}
	for i, list := range lists {
		p := &t.parts[i]
		if p.at|p.high == 0 {
			p.count = uint32(len(list))
			continue
		}
		flat := slices.Concat(list...)
		copy(unsafe.Slice(*(**uint32)(unsafe.Pointer(&p.at)), len(flat)), flat)
	}
	t.version = 1
	return nil
}
