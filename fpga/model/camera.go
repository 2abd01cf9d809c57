// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"time"

	"github.com/tegracast/tegracast/fpga"
)

// minPeriod is the shortest period of frames that are not triggered.
const minPeriod = 100 * time.Microsecond

// lateFrames is the number of periods by which a frame that is not triggered may be late, on a machine that is too
// slow, before it is dropped.
const lateFrames = 2

// camera is a sensor with its frame memory and camera block (docs/fpga-interface.md). Its fields are guarded by
// Device.mu unless noted; the picture of a buffer that is being filled or is lent is not.
type camera struct {
	cameraRegisters
	d      *Device
	index  int
	sensor *Sensor
	host   *engine
	wake   chan struct{}

	running  bool
	runs     uint64    // number of starts and resets
	flushes  uint64    // number of calls of flush
	exposing bool      // a frame is scheduled or being exposed
	due      time.Time // start of the current frame without jitter
	begin    time.Time // start of the current frame: due plus jitter
	setting  exposing  // of the current frame
	frames   uint64    // number of frames taken since the device was created, including dropped ones

	exposer exposer   // used only by the goroutine of takeFrames
	ahead   picture   // made ahead; used only by the goroutine of takeFrames
	lines   time.Time // when the host's engine will next be woken for lines that have arrived
	buffers [FrameBuffers]frameBuffer
	full    [FrameBuffers]*frameBuffer // buffers of the nfull frames to be sent, in the order of the frames
	nfull   int
	lent    *frameBuffer           // being read by the engine
	from    int                    // first of the bytes that the engine reads
	lending int                    // their number
	packet                         // packet of full[0]
	size    int                    // of a frame in bytes: pixels and, unless the camera is bare, trailer
	piece   [pieceBytes]byte       // of a frame, lent to the engine
	raw     [fpga.TrailerSize]byte // trailer of the frame

	unclosed bool            // a frame was sent completely, but its packet was not ended (F8)
	closing  bool            // the end of that packet was requested
	pad      [BeatBytes]byte // sent as the end of that packet
}

// packet is the state of the packet that is being sent.
type packet struct {
	open    bool // a part has been offered to the host
	sent    int  // bytes sent, trailer included
	forced  bool // the end of the packet was requested
	last    bool // the bytes last returned by next end the packet
	cut     int  // F8: length of the truncated packet in bytes; 0: not truncated
	unended bool // F8: the packet is sent without an end
	empty   bool // F8: an empty packet is sent first
}

type frameBuffer struct {
	picture
	trailer fpga.Trailer // PixelCRC is that of the first summed bytes
	summed  int
	used    bool      // holds a frame, or is being filled
	run     uint64    // camera.runs when the frame was taken
	n       uint64    // number of the frame: the value of camera.frames before it
	begin   time.Time // start of the readout
}

// opened holds the values of OPEN_SEQUENCE and OPEN_START for a frame.
type opened struct{ sequence, start uint64 }

func newCamera(d *Device, index int, s *Sensor, host *engine) *camera {
	c := &camera{d: d, index: index, sensor: s, host: host, wake: make(chan struct{}, 1)}
	if c.size = s.FrameBytes(); !s.cfg.Bare {
		c.size += fpga.TrailerSize
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

func (c *camera) takeFrames(ctx context.Context) {
	for ctx.Err() == nil {
		ready, ok, late := c.readyTime()
		if ok && !late && c.sensor.cfg.Readout > 0 {
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
			c.endExposure()
		}
	}
}

// readyTime returns when the exposure of the current frame ends, whether there is such a frame, and whether it is too
// late (see late).
func (c *camera) readyTime() (t time.Time, ok, late bool) {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	return c.begin.Add(c.setting.time), c.exposing, c.late(c.d.clock.Now())
}

// late reports whether the current frame must be dropped because this machine is too slow; a triggered frame never is.
// A late frame is not built: otherwise a machine that needs a whole frame period to build a frame would never catch up.
func (c *camera) late(now time.Time) bool {
	return !c.triggered() && now.Sub(c.begin) > c.setting.time+lateFrames*c.periodTime()
}

// start clears the counters, empties the frame memory except for a frame whose packet is open, and, unless frames are
// triggered, schedules the first frame.
func (c *camera) start(now time.Time) {
	c.runs++
	c.sequence, c.delivered, c.dropped, c.padded, c.missed, c.lost = 0, 0, 0, 0, 0, 0
	if c.open { // a packet can have only one end, so the open one is sent completely
		c.flush(1)
	} else {
		c.flush(0)
	}
	c.running = true
	c.expose(now)
	c.exposing = !c.triggered()
	c.kick()
}

// expose schedules the next frame for the given time plus jitter, with the current exposure time and gain.
func (c *camera) expose(due time.Time) {
	c.setting = exposing{c.exposureTime(), c.gain}
	most := c.sensor.cfg.Jitter
	if !c.triggered() {
		most = max(0, min(most, c.periodTime()-c.exposureTime()))
	}
	c.due, c.begin = due, due.Add(c.sensor.jitter(c.frames, most))
}

// stop abandons the current exposure, which is not counted. Frames in the frame memory are still sent.
func (c *camera) stop() {
	c.running, c.exposing = false, false
	c.kick()
}

// trigger schedules an exposure, or counts the trigger as missed if one has not ended. It does nothing if the camera is
// not running or not in triggered mode.
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

// endExposure ends the current exposure: the frame goes into the frame memory, or is dropped if that is full or is
// flushed while the frame is built, if the frame is too late (see late), or if the DMA channel is stopped (not if the
// camera is bare). If the camera is restarted while the frame is built, the frame is discarded and not counted.
// endExposure does nothing if no exposure has ended, because the camera was stopped or restarted before the call.
func (c *camera) endExposure() {
	d := c.d
	d.mu.Lock()
	now, begin, setting := d.clock.Now(), c.begin, c.setting
	if !c.exposing || now.Before(c.begin.Add(setting.time)) {
		d.mu.Unlock() // stopped or restarted in the meantime
		return
	}
	seq, run, flush, n := c.sequence, c.runs, c.flushes, c.frames
	t := c.trailer(seq, c.begin, setting.time)
	period := c.periodTime()
	late := c.late(now)
	c.sequence++
	c.frames++
	if c.triggered() {
		c.exposing = false
	} else {
		c.expose(c.due.Add(period))
	}
	b := c.freeBuffer()
	away := c.host.control&bitRun == 0 && !c.host.busy && !c.sensor.cfg.Bare // there is no host
	if b == nil || late || away {
		c.drop()
		d.mu.Unlock()
		return
	}
	b.used, b.run, b.n = true, run, n
	b.trailer, b.summed, b.begin = t, 0, begin.Add(setting.time)
	d.mu.Unlock()

	c.fill(b, setting)

	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case run != c.runs: // restarted: the frame belongs to the previous run
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

// fill makes the picture of the frame of b, or takes the one that was made ahead, which may be of another frame.
func (c *camera) fill(b *frameBuffer, setting exposing) {
	b.picture, c.ahead = c.ahead, b.picture
	c.exposer.expose(c.sensor, setting, c.sensor.replayed(b.trailer.Sequence), &b.picture)
}

// load implements streamSource. It makes the bytes that next has returned.
func (c *camera) load() {
	b, p, from := c.lent, c.piece[:c.lending], c.from
	if b == nil {
		return
	}
	pixels := c.sensor.FrameBytes()
	if from < pixels {
		here := p[:min(from+len(p), pixels)-from]
		c.sensor.readFrame(b.trailer.Sequence, b.pixels, from, here)
		if fresh := from + len(here) - b.summed; fresh > 0 && !c.sensor.cfg.Bare {
			b.trailer.PixelCRC = fpga.AddPixels(b.trailer.PixelCRC, here[len(here)-fresh:])
			b.summed += fresh
		}
	}
	if from+len(p) > pixels {
		raw, _ := b.trailer.AppendBinary(c.raw[:0]) // never fails
		copy(p[max(pixels-from, 0):], raw[max(from-pixels, 0):])
	}
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

// flush empties the frame memory, except for its first keep frames. It increments flushes, so that endExposure also
// drops a frame that it is building.
func (c *camera) flush(keep int) {
	c.flushes++
	for i := keep; i < c.nfull; i++ {
		c.full[i].used = false
	}
	c.nfull = min(c.nfull, keep)
}

// detach implements streamSource. It drops the frames that have not been sent completely, so that the next start of the
// channel begins with the first pixel of a frame. For a bare camera it does nothing.
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

// reset implements streamSource. A lent buffer stays out of use until it is returned.
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

// next implements streamSource. A forced end of a packet is one last beat.
func (c *camera) next(n int) (p []byte, eop bool) {
	c.lent = nil
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
	length := c.length()
	end := min(c.sent+min(n, pieceBytes), length)
	if there := c.arrived(); there < end && !c.forced {
		if end = max(there, c.sent); end == c.sent {
			return nil, false
		}
	}
	if c.forced {
		end = min(c.sent+BeatBytes, end)
		c.last = true
	}
	c.lent, c.from, c.lending = c.full[0], c.sent, end-c.sent
	return c.piece[:c.lending], c.last || end == length && !c.unended
}

// beginPacket opens the packet of the first frame in the frame memory, and makes the frame an opportunity for faults.
func (c *camera) beginPacket() {
	c.open = true
	b := c.full[0]
	c.opened = opened{b.trailer.Sequence, b.trailer.Start}
	c.host.beginUnit(b.n, c.size)
	a, hit := c.host.fire(F8, "packet cut short", "packet without an end", "empty packet before the frame")
	if !hit {
		return
	}
	switch a.variant(3) {
	case packetShort:
		c.cut = c.d.cfg.Faults.place(a.roll>>8, c.size)
	case packetUnended:
		c.unended = true
	case packetEmpty:
		c.empty = true
	}
}

func (c *camera) length() int {
	if c.cut > 0 {
		return c.cut
	}
	return c.size
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
	case c.full[0].run != c.runs: // of an earlier run, which the counters no longer include
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

// Counters returns the counters of Config.Sensors[sensor] since its latest start or reset, as its camera block would
// report them.
func (d *Device) Counters(sensor int) fpga.CameraCounters {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.cameras[sensor]
	return fpga.CameraCounters{
		Sequence: c.sequence, Delivered: c.delivered, Dropped: c.dropped, Padded: c.padded, Lost: c.lost, TriggerMissed: c.missed,
	}
}
