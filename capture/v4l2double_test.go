// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"encoding/binary"
	"slices"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/videodev"
)

// A videoDouble is a machine with one simulated camera, and a sensor behind it if sensor is set. It refuses what the
// kernel's documentation forbids. The test makes its frames by calling frame.
type videoDouble struct {
	mu       sync.Mutex
	parted   time.Time // when it was unplugged
	crashed  bool      // it was closed while its driver took it away
	multi    bool
	codes    []uint32
	width    uint32
	height   uint32
	padding  uint32       // bytes after each line
	planes   func() []int // sizes of the planes in memory; nil: one with all lines
	user     bool         // it takes memory of the user
	refuses  unix.Errno   // for memory of the user, when a buffer is queued
	least    uint32       // buffers
	rate     uint32       // frames a second; 0: it does not tell
	driver   string
	controls []*doubleControl
	sensor   bool
	off      bool                       // the link from the sensor is off
	pads     map[int]videodev.PadFormat // of the bridge, and -1: the sensor's
	fails    map[uintptr]unix.Errno     // requests that fail
	hangs    map[uintptr]chan struct{}  // requests that return when the channel is closed
	after    map[uintptr]func()         // what else a request changes
	soc      string
	stamps   uint32    // flags of timestamps
	offset   uint32    // of pixels in a plane
	signal   [2]uint32 // width and height of what an input gets; 0: it is no such input
	path     string    // device file; empty: it is unplugged
	place    string
	serial   string
	holders  []videodev.Holder
	hidden   bool // there may be more of them

	pixels   uint32
	memory   uint32
	buffers  []doubleBuffer
	waiting  []int
	done     []videodev.Buffer
	used     [][videodev.MaxPlanes]videodev.Plane
	events   []uint32
	streams  bool
	broken   bool
	sequence uint32
	wake     alarm // set when something is done
	opened   int
	settings [][]uint32 // numbers of the controls of each request
}

type doubleBuffer struct {
	queued bool
	own    [][]byte
	user   [][]byte
	mapped int
}

type doubleControl struct {
	id       uint32
	name     string
	kind     uint32
	min, max int64
	step     uint64
	value    int64
	flags    uint32
	items    []string
	array    []uint32
	sensor   bool
}

const (
	doubleVideo = 81 << 8 // the devices' numbers
	doubleGraph = 81<<8 | 1
	doubleChip  = 81<<8 | 2
)

// An alarm is an eventfd(2).
type alarm int

func (a alarm) Set() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(int(a), one[:])
}

func (a alarm) Clear() {
	var count [8]byte
	_, _ = unix.Read(int(a), count[:])
}

func newDouble(codes ...string) *videoDouble {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		panic(err)
	}
	d := &videoDouble{
		width: 64, height: 48, user: true, rate: 30, least: 2, wake: alarm(fd), path: "/dev/video0", place: "/devices/bus/port1", serial: "1:2:3",
		fails: map[uintptr]unix.Errno{}, hangs: map[uintptr]chan struct{}{}, stamps: videodev.FlagStampMonotone, driver: "double",
	}
	for _, c := range codes {
		d.codes = append(d.codes, videodev.Code(c))
	}
	d.pixels = d.codes[0]
	return d
}

// A doubleFile is an open device file.
type doubleFile struct {
	d       *videoDouble
	what    int
	session string // place of the device when it was opened
}

func (f *doubleFile) Close() error {
	d := f.d
	d.mu.Lock()
	defer d.mu.Unlock()
	d.opened--
	if f.what == doubleVideo && f.session == d.place {
		d.release()
	}
	if f.what == doubleVideo && time.Since(d.parted) < partingPause/2 {
		d.crashed = true
	}
	return nil
}

// release takes everything from the queue.
func (d *videoDouble) release() {
	d.streams, d.waiting, d.done, d.used = false, nil, nil, nil
	d.buffers = nil
}

func (f *doubleFile) Mmap(offset int64, length int) ([]byte, error) {
	d := f.d
	d.mu.Lock()
	defer d.mu.Unlock()
	i, k := int(offset>>16), int(offset>>12&0xf)
	if d.memory != videodev.MemoryMapped || i >= len(d.buffers) || k >= len(d.buffers[i].own) || length > len(d.buffers[i].own[k]) {
		return nil, unix.EINVAL
	}
	d.buffers[i].mapped++
	return d.buffers[i].own[k][:length], nil
}

func (f *doubleFile) Munmap(b []byte) error {
	d := f.d
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.buffers {
		for _, own := range d.buffers[i].own {
			if &own[0] == &b[0] {
				d.buffers[i].mapped--
				return nil
			}
		}
	}
	return nil // of a device that was unplugged
}

func (f *doubleFile) Wait(what int16, wake *videodev.Wake, limit time.Duration) (videodev.Ready, error) {
	d := f.d
	d.mu.Lock()
	d.wake.Clear()
	r := d.ready(f, what)
	d.mu.Unlock()
	if r != (videodev.Ready{}) {
		return r, nil
	}
	if _, err := wake.Poll(int(d.wake), unix.POLLIN, limit); err != nil {
		return videodev.Ready{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ready(f, what), nil
}

func (d *videoDouble) ready(f *doubleFile, what int16) videodev.Ready {
	if f.session != d.place {
		return videodev.Ready{Broken: true}
	}
	return videodev.Ready{
		Buffer: what&videodev.ForInput != 0 && len(d.done) > 0, Event: len(d.events) > 0,
		Broken: d.broken || what&videodev.ForInput != 0 && !d.streams,
	}
}

func (f *doubleFile) Ioctl(request uintptr, at unsafe.Pointer) error {
	d := f.d
	d.mu.Lock()
	hang := d.hangs[request]
	d.mu.Unlock()
	if hang != nil {
		<-hang
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if f.session != d.place {
		return unix.ENODEV
	}
	if e, fails := d.fails[request]; fails {
		return e
	}
	err := f.answer(request, at)
	if also := d.after[request]; also != nil && err == nil {
		also()
	}
	return err
}

func (f *doubleFile) answer(request uintptr, at unsafe.Pointer) error {
	d := f.d
	switch request {
	case videodev.DescribeControl, videodev.QueryMenuItem, videodev.GetControls, videodev.SetControls:
		return d.control(request, at, f.what == doubleChip)
	}
	switch f.what {
	case doubleGraph:
		return d.topology(request, at)
	case doubleChip:
		return d.subdevice(request, at)
	}
	return d.video(request, at)
}

func (d *videoDouble) video(request uintptr, at unsafe.Pointer) error {
	switch request {
	case videodev.QueryCapabilities:
		c := (*videodev.Capability)(at)
		copy(c.Driver[:], d.driver)
		copy(c.Card[:], "Double")
		c.Capabilities, c.Device = videodev.HasDevice, videodev.CanStream|videodev.CanCapture
		if d.multi {
			c.Device = videodev.CanStream | videodev.CanCaptureMulti
		}
	case videodev.ListFormats:
		f := (*videodev.FormatDescription)(at)
		if int(f.Index) >= len(d.codes) || f.Type != d.kind() {
			return unix.EINVAL
		}
		f.Pixels = d.codes[f.Index]
	case videodev.ListSizes:
		s := (*videodev.FrameSize)(at)
		if s.Index > 0 {
			return unix.EINVAL
		}
		s.Type, s.Size[0], s.Size[1] = videodev.Discrete, d.width, d.height
	case videodev.ListIntervals:
		s := (*videodev.FrameInterval)(at)
		if s.Index > 0 || d.rate == 0 {
			return unix.EINVAL
		}
		s.Type, s.Interval[0] = videodev.Discrete, videodev.Fraction{Numerator: 1, Denominator: d.rate}
	case videodev.GetFormat, videodev.SetFormat:
		return d.format((*videodev.Format)(at), request == videodev.SetFormat)
	case videodev.GetParameters, videodev.SetParameters:
		p := (*videodev.StreamParameters)(at)
		switch {
		case p.Type != d.kind():
			return unix.EINVAL
		case d.rate == 0:
			return unix.ENOTTY
		case request == videodev.SetParameters && d.streams:
			return unix.EBUSY
		}
		p.Capability, p.Numerator, p.Denominator = videodev.CanSetRate, 1, d.rate
	case videodev.QueryTimings:
		if d.signal[0] == 0 {
			return unix.ENODATA
		}
		t := (*videodev.Timings)(at)
		t.Width, t.Height = d.signal[0], d.signal[1]
	case videodev.SetTimings:
		t := (*videodev.Timings)(at)
		d.width, d.height = t.Width, t.Height
	case videodev.Subscribe:
		return nil
	case videodev.DequeueEvent:
		if len(d.events) == 0 {
			return unix.ENOENT
		}
		(*videodev.Event)(at).Type, d.events = d.events[0], d.events[1:]
	default:
		return d.queue(request, at)
	}
	return nil
}

func (d *videoDouble) kind() uint32 {
	if d.multi {
		return videodev.CaptureMulti
	}
	return videodev.Capture
}

// line returns the bytes of a line of the first plane.
func (d *videoDouble) line() uint32 {
	c, ok := v4l2CodeOf(d.pixels)
	if !ok {
		return 0
	}
	n := c.pixel.LineBytes(int(d.width))
	if c.line != nil {
		n = c.line(int(d.width))
	}
	return uint32(n) + d.padding
}

func (d *videoDouble) sizes() []int {
	if d.planes != nil {
		return d.planes()
	}
	n := int(d.line() * d.height)
	if c, _ := v4l2CodeOf(d.pixels); c.pixel == pipeline.NV12 || c.pixel == pipeline.I420 {
		n += n / 2
	}
	return []int{n + int(d.offset)}
}

func (d *videoDouble) format(f *videodev.Format, set bool) error {
	if f.Type != d.kind() {
		return unix.EINVAL
	}
	pixels := f.Single().Pixels
	if d.multi {
		pixels = f.Multi().Pixels
	}
	if set {
		if len(d.buffers) > 0 {
			return unix.EBUSY
		}
		if slices.Contains(d.codes, pixels) {
			d.pixels = pixels
		}
	}
	if !d.multi {
		*f.Single() = videodev.SingleFormat{Width: d.width, Height: d.height, Pixels: d.pixels, Field: videodev.FieldNone, Stride: d.line(), Size: uint32(d.sizes()[0])}
		return nil
	}
	m := videodev.MultiFormat{Width: d.width, Height: d.height, Pixels: d.pixels, Field: videodev.FieldNone, Count: uint8(len(d.sizes()))}
	for i, n := range d.sizes() {
		m.Planes[i] = videodev.PlaneFormat{Size: uint32(n), Stride: d.line()}
	}
	*f.Multi() = m
	return nil
}
