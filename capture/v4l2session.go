// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline/videodev"
)

// mapped is the number of buffers that are mapped if the device cannot write into the slots: two at the device, and two
// that are being copied or waited for.
const mapped = 4

// A v4l2Session is one period during which a camera has its device open. Its methods run on one goroutine; only settings
// are changed from others.
type v4l2Session struct {
	camera   *V4L2Camera
	watched  watchedDevice
	number   videodev.Number
	device   *watchedFile // nil: not open
	kind     uint32       // of the queue
	about    videodev.About
	transfer *transfer
	user     bool // the device writes into the slots
	why      string
	buffers  []v4l2Buffer
	queued   int
	hungry   atomic.Bool // few buffers are queued
	graph    v4l2Graph
	settings v4l2Settings
	args     struct { // what calls read and write: on the heap, where it does not move
		buffer videodev.Buffer
		planes [videodev.MaxPlanes]videodev.Plane
		list   [videodev.MaxPlanes][]byte
		kind   int32
	}

	seen bool   // a frame has come since the stream was started
	last uint32 // the driver's number of the latest frame

	effects sync.Mutex // guards given
	given   bool       // the session was given up: it may do nothing that others see
}

// A v4l2Buffer is a buffer of the driver.
type v4l2Buffer struct {
	planes [][]byte // mapped memory; nil if the device writes into slots
	slot   int      // at the device, or -1
}

// abandon makes a session whose driver hangs have no effect any more. The camera has no other one until the call returns.
func (s *v4l2Session) abandon(call *hungCall) {
	s.effects.Lock()
	s.given = true
	s.effects.Unlock()
	c := s.camera
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hung, c.session = call, nil
}

// effect does what others see, unless the session was given up.
func (s *v4l2Session) effect(do func()) {
	s.effects.Lock()
	defer s.effects.Unlock()
	if !s.given {
		do()
	}
}

// open opens the device, agrees on format and controls, and makes the buffers.
func (s *v4l2Session) open() error {
	c := s.camera
	path, number, err := c.sup.find()
	if err != nil {
		return err
	}
	s.number = number
	if s.device, err = s.openFile(path); err != nil {
		return s.explain(err)
	}
	if err := s.recognize(); err != nil {
		return err
	}
	if err := videodev.FollowSignal(s.device); err != nil {
		return s.explain(err)
	}
	s.graph = readGraph(s, path)
	if err := s.agree(); err != nil {
		return s.explain(err)
	}
	if c.pool == nil {
		err := ErrHangs
		if s.effect(func() { err = c.makeSlots(s.transfer) }); err != nil {
			return err
		}
		if s.transfer.doubt != "" {
			c.cfg.Logger.Warn("source has colours that are not passed on exactly", "source", c.cfg.Name, "why", s.transfer.doubt)
		}
	} else if s.transfer.format.Stride != c.format.Stride || s.transfer.format.Color != c.format.Color {
		return fmt.Errorf("%w: it sends %s now, and sent %s", videodev.ErrAnswer, s.transfer.format, c.format)
	}
	if err := s.makeBuffers(); err != nil {
		return s.explain(err)
	}
	c.cfg.Logger.Info("source opened its camera", "source", c.cfg.Name, "device", path, "card", s.about.Card, "format", c.format.String(), "frames by", s.how())
	return nil
}

// openFile opens a device file. Its calls are watched.
func (s *v4l2Session) openFile(path string) (*watchedFile, error) {
	s.watched.in(callOpen)
	defer s.watched.out()
	d, err := s.camera.host.open(path)
	if err != nil {
		return nil, err
	}
	return &watchedFile{d, &s.watched}, nil
}

// recognize checks that the device is a camera, and selects its queue.
func (s *v4l2Session) recognize() (err error) {
	if s.about, err = videodev.Ask(s.device); err != nil {
		return fmt.Errorf("it is no video device: %w", err)
	}
	switch can := s.about.Can; {
	case can&videodev.CanStream == 0 || can&(videodev.CanCapture|videodev.CanCaptureMulti) == 0:
		return fmt.Errorf("%w: %s is no camera (capabilities %#x)", videodev.ErrNoDevice, s.about.Card, can)
	case can&videodev.CanCaptureMulti != 0:
		s.kind = videodev.CaptureMulti
	default:
		s.kind = videodev.Capture
	}
	for _, kind := range []uint32{videodev.EventSourceChange, videodev.EventEnd} {
		_ = s.device.Ioctl(videodev.Subscribe, unsafe.Pointer(&videodev.Subscription{Type: kind})) // few devices have them
	}
	return nil
}

// how returns how frames come into the slots.
func (s *v4l2Session) how() string {
	text := "USERPTR"
	if !s.user {
		text = "MMAP, one copy"
	}
	if s.transfer.says != "" {
		text += ", " + s.transfer.says
	}
	if s.why != "" {
		text += " (" + s.why + ")"
	}
	return text
}

// makeBuffers makes the driver's buffers: the slots, if the driver takes them, and otherwise buffers that are mapped.
func (s *v4l2Session) makeBuffers() error {
	t := s.transfer
	switch {
	case !t.direct && !t.inPlace:
		s.why = ""
	case !t.direct && s.camera.cfg.Flags&cudahost.WriteCombined != 0:
		s.why = "the CPU must not change write-combined frames"
	default:
		err := s.useSlots()
		if err == nil || errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENODEV) {
			return err
		}
		s.why = "USERPTR: " + err.Error()
	}
	return s.mapBuffers()
}

// useSlots gives the slots to the driver once, to see whether it takes them. They come back with the buffers.
func (s *v4l2Session) useSlots() error {
	c := s.camera
	if has, needs := len(c.memory[0].Bytes()), s.transfer.size(); needs > has {
		return fmt.Errorf("a frame needs %d bytes now, and a slot has %d", needs, has)
	}
	n, err := s.request(min(c.cfg.Slots, videodev.MaxBuffers), videodev.MemoryUser)
	if errors.Is(err, unix.EINVAL) {
		return errors.New("the driver has none")
	} else if err != nil {
		return err
	}
	if n > c.cfg.Slots {
		return errors.Join(fmt.Errorf("the driver wants %d slots", n), s.free())
	}
	s.user = true
	for range n {
		s.buffers = append(s.buffers, v4l2Buffer{slot: -1})
	}
	if err := s.enqueueSlots(); err != nil {
		return both(fmt.Errorf("the driver does not take this memory: %w", err), s.free())
	}
	return nil
}

// request makes buffers, none if n is 0, and returns how many there are.
func (s *v4l2Session) request(n int, memory uint32) (int, error) {
	r := &videodev.RequestBuffers{Count: uint32(n), Type: s.kind, Memory: memory}
	if err := s.device.Ioctl(videodev.MakeBuffers, unsafe.Pointer(r)); err != nil {
		return 0, fmt.Errorf("VIDIOC_REQBUFS: %w", err)
	}
	if n > 0 && (r.Count == 0 || r.Count > 4096) {
		return 0, fmt.Errorf("VIDIOC_REQBUFS: %w: %d buffers", videodev.ErrAnswer, r.Count)
	}
	return int(r.Count), nil
}

// mapBuffers makes and maps buffers of the driver, and queues them.
func (s *v4l2Session) mapBuffers() error {
	n, err := s.request(mapped, videodev.MemoryMapped)
	if err != nil {
		return err
	}
	for i := range n {
		b := s.describe(i)
		if err := s.device.Ioctl(videodev.QueryBuffer, unsafe.Pointer(b)); err != nil {
			return fmt.Errorf("VIDIOC_QUERYBUF: %w", err)
		}
		s.buffers = append(s.buffers, v4l2Buffer{slot: -1})
		for k := range s.transfer.layout.Planes {
			offset, length := int64(b.At), int(b.Length)
			if s.kind == videodev.CaptureMulti {
				offset, length = int64(s.args.planes[k].At), int(s.args.planes[k].Length)
			}
			if length < s.transfer.need[k] {
				return fmt.Errorf("VIDIOC_QUERYBUF: %w: %d bytes for %d", videodev.ErrAnswer, length, s.transfer.need[k])
			}
			m, err := s.device.Mmap(offset, length)
			if err != nil {
				return fmt.Errorf("mmap of %d bytes: %w", length, err)
			}
			s.buffers[i].planes = append(s.buffers[i].planes, m)
		}
	}
	return nil
}

// describe returns the structure that identifies a buffer in calls. The next call of describe overwrites it.
func (s *v4l2Session) describe(i int) *videodev.Buffer {
	b := &s.args.buffer
	*b = videodev.Buffer{Index: uint32(i), Type: s.kind, Memory: videodev.MemoryMapped}
	if s.user {
		b.Memory = videodev.MemoryUser
	}
	if s.kind == videodev.CaptureMulti {
		s.args.planes = [videodev.MaxPlanes]videodev.Plane{}
		b.At, b.Length = uint64(uintptr(unsafe.Pointer(&s.args.planes))), uint32(len(s.transfer.layout.Planes))
	}
	return b
}

// enqueue gives a buffer to the driver, with the memory of a slot unless it is mapped.
func (s *v4l2Session) enqueue(i, slot int) error {
	b := s.describe(i)
	if s.user {
		at, planes := s.camera.address(slot), s.transfer.layout.Planes
		if s.kind == videodev.Capture {
			b.At, b.Length = at, planes[0].Size
		}
		for k, p := range s.transfer.parts {
			if s.kind == videodev.CaptureMulti && (k == 0 || len(planes) > 1) {
				s.args.planes[p.plane].At, s.args.planes[p.plane].Length = at+uint64(p.to), planes[p.plane].Size
			}
		}
	}
	err := s.device.Ioctl(videodev.Enqueue, unsafe.Pointer(b))
	runtime.KeepAlive(s)
	if err != nil {
		return fmt.Errorf("VIDIOC_QBUF: %w", err)
	}
	s.buffers[i].slot = slot
	s.queued++
	return nil
}

// enqueueSlots gives all free slots to the driver, as far as there are buffers. A slot prefers the buffer of its number,
// for which the driver has its pages already.
func (s *v4l2Session) enqueueSlots() error {
	c := s.camera
	for slot := range c.cfg.Slots {
		if s.queued == len(s.buffers) {
			return nil
		}
		c.mu.Lock()
		free := c.slots[slot] == slotFree
		if free {
			c.slots[slot] = slotQueued
		}
		c.mu.Unlock()
		if !free {
			continue
		}
		i := slot
		for k := 0; i >= len(s.buffers) || s.buffers[i].slot >= 0; k++ {
			i = k
		}
		if err := s.enqueue(i, slot); err != nil {
			c.slotFreed(slot)
			return err
		}
	}
	return nil
}

// start queues all buffers and starts the stream.
func (s *v4l2Session) start() error {
	s.seen = false
	if s.user {
		if err := s.enqueueSlots(); err != nil {
			return err
		}
	} else {
		for i := range s.buffers {
			if s.buffers[i].slot < 0 {
				if err := s.enqueue(i, i); err != nil {
					return err
				}
			}
		}
	}
	s.args.kind = int32(s.kind)
	if err := s.device.Ioctl(videodev.StreamOn, unsafe.Pointer(&s.args.kind)); err != nil {
		return s.explain(s.repair(fmt.Errorf("VIDIOC_STREAMON: %w", err)))
	}
	return nil
}

// stop ends the stream, which takes all buffers from the driver.
func (s *v4l2Session) stop() error {
	s.args.kind = int32(s.kind)
	if err := s.device.Ioctl(videodev.StreamOff, unsafe.Pointer(&s.args.kind)); err != nil {
		return fmt.Errorf("VIDIOC_STREAMOFF: %w", err) // closing the device does it, too
	}
	s.takeBack()
	return nil
}

// takeBack makes the slots that the driver has no more free.
func (s *v4l2Session) takeBack() {
	for i := range s.buffers {
		if slot := s.buffers[i].slot; slot >= 0 && s.user {
			s.effect(func() { s.camera.slotFreed(slot) })
		}
		s.buffers[i].slot = -1
	}
	s.queued = 0
}

// free frees the buffers.
func (s *v4l2Session) free() error {
	memory := uint32(videodev.MemoryMapped)
	if s.user {
		memory = videodev.MemoryUser
	}
	var errs []error
	for _, b := range s.buffers {
		for _, m := range b.planes {
			errs = append(errs, s.device.Munmap(m))
		}
	}
	_, err := s.request(0, memory)
	s.takeBack()
	s.buffers, s.user = nil, false
	return errors.Join(append(errs, err)...)
}

// close closes the device, which ends the stream and takes all memory from the driver.
func (s *v4l2Session) close() error {
	if s.device == nil {
		return nil
	}
	var errs []error
	for _, b := range s.buffers {
		for _, m := range b.planes {
			errs = append(errs, s.device.Munmap(m))
		}
	}
	errs = append(errs, s.settings.close(), s.device.Close())
	s.device = nil
	s.takeBack()
	return errors.Join(errs...)
}
