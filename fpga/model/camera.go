// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"time"

	"github.com/tegracast/tegracast/fpga"
)

// minPeriod is the shortest frame period.
const minPeriod = 100 * time.Microsecond

// lateFrames is how many periods a frame may be late, on a machine that is too slow, before it is dropped.
const lateFrames = 2

// camera is a sensor with its frame memory and camera block (docs/fpga-interface.md). All fields are guarded
// by Device.mu but those of the buffer that is being filled.
type camera struct {
	cameraRegisters
	d      *Device
	index  int
	sensor *Sensor
	host   *engine
	wake   chan struct{}

	running  bool
	runs     uint64    // starts of the camera
	flushes  uint64    // times that the frame memory was emptied
	exposing bool      // a frame has begun
	due      time.Time // when the frame under way ought to have begun
	begin    time.Time // of the frame under way: due, and the jitter
	setting  exposing  // of the frame under way
	frames   uint64    // taken since the device was made

	exposer exposer   // used by run's goroutine alone
	made    made      // the same
	lines   time.Time // when the host is told next that more lines have come
	buffers [FrameBuffers]frameBuffer
	full    [FrameBuffers]*frameBuffer // in the order of their frames
	nfull   int
	lent    *frameBuffer // the engine reads it
	packet               // that of full[0]

	unclosed bool            // a frame has left whole without ending its packet (F8)
	closing  bool            // the end of that packet was asked for
	pad      [BeatBytes]byte // with which it is sent
}

// packet is how far a frame has left.
type packet struct {
	open    bool // a part has been offered to the host
	sent    int  // bytes that have left, trailer included
	forced  bool // end it
	last    bool // what next offered is its end
	cut     int  // F8: its length, 0 is all of it
	unended bool // F8
	empty   bool // F8: an empty packet comes first
}

type frameBuffer struct {
	data []byte // pixels and trailer
	used bool
	run  uint64 // camera.runs when the frame was taken
	n    uint64 // camera.frames of this one
	opened
	begin time.Time // of the readout
}

// opened is what OPEN_SEQUENCE and OPEN_START tell of a frame.
type opened struct{ sequence, start uint64 }

func newCamera(d *Device, index int, s *Sensor, host *engine) *camera {
	c := &camera{d: d, index: index, sensor: s, host: host, wake: make(chan struct{}, 1)}
	size := s.FrameBytes() + fpga.TrailerSize
	if s.cfg.Bare {
		size = s.FrameBytes()
	}
	for i := range c.buffers {
		c.buffers[i].data = make([]byte, size)
	}
	c.reset()
	return c
}

func (c *camera) kick() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run takes frames until ctx ends.
func (c *camera) run(ctx context.Context) {
	for ctx.Err() == nil {
		ready, ok := c.readyTime()
		if ok && c.sensor.cfg.Readout > 0 {
			c.makeAhead()
		}
		if !ok {
			select {
			case <-ctx.Done():
			case <-c.wake:
			}
			continue
		}
		if c.d.clock.Wait(ready, c.wake) {
			c.take()
		}
	}
}

// readyTime is when the frame under way has been exposed.
func (c *camera) readyTime() (t time.Time, ok bool) {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	return c.begin.Add(c.setting.time), c.exposing
}

// start clears the counters and begins the first frame.
func (c *camera) start(now time.Time) {
	c.runs++
	c.sequence, c.delivered, c.dropped, c.padded, c.missed, c.lost = 0, 0, 0, 0, 0, 0
	if c.open { // a packet has one end only: what was begun is sent
		c.flush(1)
	} else {
		c.flush(0)
	}
	c.running = true
	c.expose(now)
	c.exposing = !c.triggered()
	c.kick()
}

// expose begins the next frame at the time given, but for the jitter, with what the registers say now.
func (c *camera) expose(due time.Time) {
	c.setting = exposing{c.exposureTime(), c.gain}
	most := c.sensor.cfg.Jitter
	if !c.triggered() {
		most = max(0, min(most, c.periodTime()-c.exposureTime()))
	}
	c.due, c.begin = due, due.Add(c.sensor.jitter(c.frames, most))
}

// stop abandons the exposure under way; it is not counted. Frames in the frame memory still leave.
func (c *camera) stop() {
	c.running, c.exposing = false, false
	c.kick()
}

// trigger begins an exposure in triggered mode.
func (c *camera) trigger(now time.Time) {
	switch {
	case !c.running || !c.triggered():
	case c.exposing:
		c.missed++
		c.events |= uint32(fpga.EventTriggerMissed)
	default:
		c.expose(now)
		c.exposing = true
		c.kick()
	}
}

// take ends the exposure under way: the frame goes into the frame memory, or is dropped when that is full or no host
// is there.
func (c *camera) take() {
	d := c.d
	d.mu.Lock()
	now, begin, setting := d.clock.Now(), c.begin, c.setting
	if !c.exposing || now.Before(c.begin.Add(setting.time)) {
		d.mu.Unlock() // stopped, or restarted, since it was looked at
		return
	}
	seq, run, flush, n := c.sequence, c.runs, c.flushes, c.frames
	t := c.trailer(seq, c.begin, setting.time)
	period := c.periodTime()
	late := !c.triggered() && now.Sub(c.begin) > setting.time+lateFrames*period
	c.sequence++
	c.frames++
	if c.triggered() {
		c.exposing = false
	} else {
		c.expose(c.due.Add(period))
	}
	b := c.freeBuffer()
	away := c.host.control&bitRun == 0 && !c.host.busy && !c.sensor.cfg.Bare // the host
	if b == nil || late || away {
		c.drop()
		d.mu.Unlock()
		return
	}
	b.used, b.run, b.n = true, run, n
	b.opened, b.begin = opened{seq, t.Start}, begin.Add(setting.time)
	d.mu.Unlock()

	c.fill(b, run, seq, setting, t)

	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case run != c.runs: // restarted: not one of its frames
		b.used = false
	case flush != c.flushes:
		b.used = false
		c.drop()
	default:
		c.full[c.nfull] = b
		c.nfull++
		c.host.kick()
	}
}

// fill builds frame seq in the buffer, unless it was made ahead.
func (c *camera) fill(b *frameBuffer, run, seq uint64, setting exposing, t fpga.Trailer) {
	if m := &c.made; m.ok && m.run == run && m.sequence == seq && m.setting == setting && m.start == t.Start {
		b.data, m.data, m.ok = m.data, b.data, false
		return
	}
	c.build(b.data, seq, setting, t)
}

// build makes the bytes of frame seq.
func (c *camera) build(data []byte, seq uint64, setting exposing, t fpga.Trailer) {
	pixels := data[:c.sensor.FrameBytes()]
	c.sensor.Frame(seq, pixels)
	c.exposer.apply(c.sensor, setting, pixels)
	if c.sensor.cfg.Bare {
		return
	}
	t.PixelCRC = fpga.PixelCRC(pixels)
	_, _ = t.AppendBinary(pixels) // the buffer has the room behind the pixels
}

func (c *camera) trailer(seq uint64, begin time.Time, exposure time.Duration) fpga.Trailer {
	cfg := c.sensor.Config()
	size := uint64(c.sensor.FrameBytes())
	t := fpga.Trailer{
		Sequence: seq,
		Start:    c.d.timestamp(begin), End: c.d.timestamp(begin.Add(exposure)),
		Width: uint32(cfg.Width), Height: uint32(cfg.Height), Stride: uint32(c.sensor.line), Format: cfg.Format,
		Bytes: size, Valid: size,
	}
	if c.triggered() {
		t.Flags |= fpga.FlagTriggered
	}
	if cfg.Readout > 0 {
		first := begin.Add(exposure)
		t.FirstLine = c.d.timestamp(first.Add(cfg.Readout / time.Duration(cfg.Height)))
		t.LastLine = c.d.timestamp(first.Add(cfg.Readout))
	}
	return t
}

func (c *camera) freeBuffer() *frameBuffer {
	for i := range c.buffers {
		if !c.buffers[i].used && &c.buffers[i] != c.lent {
			return &c.buffers[i]
		}
	}
	return nil
}

func (c *camera) drop() {
	c.dropped++
	c.events |= uint32(fpga.EventDropped)
	c.d.updateIRQ()
}

// flush empties the frame memory but for its first keep frames. A buffer that is being filled notices by flushes.
func (c *camera) flush(keep int) {
	c.flushes++
	for i := keep; i < c.nfull; i++ {
		c.full[i].used = false
	}
	c.nfull = min(c.nfull, keep)
}

// detach implements streamSource: frames that have not left complete are dropped, so that the next start of the
// channel begins with the first pixel of a frame. A bare one does not notice.
func (c *camera) detach() {
	if c.sensor.cfg.Bare {
		return
	}
	for i := range c.nfull {
		if c.full[i].run == c.runs {
			c.drop()
		}
	}
	c.flush(0)
	c.packet = packet{}
}

// reset implements streamSource. What is lent stays out of use until it comes back.
func (c *camera) reset() {
	c.runs++
	c.lines = time.Time{}
	c.flush(0)
	c.cameraRegisters, c.packet = resetCameraRegisters(c.sensor.Config()), packet{}
	c.unclosed, c.closing = false, false
	c.stop()
	if c.sensor.cfg.Bare {
		c.control = fpga.CameraRun
		c.start(c.d.clock.Now())
	}
}

// next implements streamSource. A forced end of packet is one last beat.
func (c *camera) next(n int) (p []byte, eop bool) {
	if c.closing && n > 0 {
		return c.pad[:min(n, BeatBytes)], true
	}
	if c.nfull == 0 || n == 0 {
		return nil, false
	}
	if !c.open {
		c.beginPacket()
	}
	if c.empty {
		return nil, true
	}
	c.lent = c.full[0]
	length := c.length()
	end := min(c.sent+n, length)
	if there := c.arrived(); there < end && !c.forced {
		if end = max(there, c.sent); end == c.sent {
			c.lent = nil
			return nil, false
		}
	}
	if c.forced {
		end = min(c.sent+BeatBytes, end)
		c.last = true
	}
	return c.lent.data[c.sent:end], c.last || end == length && !c.unended
}

// beginPacket makes the frame an opportunity for faults.
func (c *camera) beginPacket() {
	c.open = true
	b := c.full[0]
	c.cameraRegisters.opened = b.opened
	c.host.begin(b.n, len(b.data))
	a, hit := c.host.fire(F8, "packet cut short", "packet without an end", "empty packet before the frame")
	if !hit {
		return
	}
	switch a.variant(3) {
	case packetShort:
		c.cut = c.d.cfg.Faults.place(a.roll>>8, len(b.data))
	case packetUnended:
		c.unended = true
	case packetEmpty:
		c.empty = true
	}
}

// length is how many bytes of the frame leave.
func (c *camera) length() int {
	if c.cut > 0 {
		return c.cut
	}
	return len(c.full[0].data)
}

// taken implements streamSource.
func (c *camera) taken(n int) {
	if c.closing {
		c.unclosed, c.closing = n == 0, n == 0
		return
	}
	c.lent = nil
	if n == 0 {
		c.empty = false
		return
	}
	c.sent += n
	whole := c.sent == c.length()
	if !whole && !c.last {
		return
	}
	switch {
	case c.full[0].run != c.runs: // of a run that the counters no longer know
	case whole && (c.cut > 0 || c.unended):
		c.lost++
	case whole:
		c.delivered++
	default:
		c.drop()
	}
	c.unclosed = whole && c.unended
	c.full[0].used = false
	c.nfull--
	copy(c.full[:], c.full[1:])
	c.packet = packet{}
}

// Counters are those of a sensor since its last start, as its camera block would have them.
func (d *Device) Counters(sensor int) fpga.CameraCounters {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.cameras[sensor]
	return fpga.CameraCounters{
		Sequence: c.sequence, Delivered: c.delivered, Dropped: c.dropped, Padded: c.padded, Lost: c.lost, TriggerMissed: c.missed,
	}
}
