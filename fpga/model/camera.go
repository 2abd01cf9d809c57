package model

import (
	"context"
	"time"

	"tegracast/fpga"
)

// minPeriod is the shortest frame period.
const minPeriod = 100 * time.Microsecond

// lateFrames is how many periods a frame may be late, on a machine that is too slow, before it is dropped.
const lateFrames = 2

// camera is the sensor with its frame memory and the camera block (docs/fpga-interface.md). All fields are guarded
// by Device.mu but those of the buffer that is being filled.
type camera struct {
	cameraRegisters
	d      *Device
	sensor *Sensor
	host   *engine
	wake   chan struct{}

	running  bool
	runs     uint64    // starts of the camera
	flushes  uint64    // times that the frame memory was emptied
	exposing bool      // a frame has begun
	begin    time.Time // of the frame under way

	buffers [FrameBuffers]frameBuffer
	full    [FrameBuffers]*frameBuffer // in the order of their frames
	nfull   int
	open    bool // a part of full[0] has been offered to the host
	sent    int  // bytes of full[0], trailer included, that have left
	forced  bool // end the open packet
	last    bool // what next offered is the end of a forced packet
}

type frameBuffer struct {
	data []byte // pixels and trailer
	used bool
	run  uint64 // camera.runs when the frame was taken
}

func newCamera(d *Device, s *Sensor, host *engine) *camera {
	c := &camera{d: d, sensor: s, host: host, wake: make(chan struct{}, 1)}
	c.cameraRegisters = resetCameraRegisters(s.Config())
	for i := range c.buffers {
		c.buffers[i].data = make([]byte, s.FrameBytes()+fpga.TrailerSize)
	}
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
	return c.begin.Add(c.exposureTime()), c.exposing
}

// start clears the counters and begins the first frame.
func (c *camera) start(now time.Time) {
	c.runs++
	c.sequence, c.delivered, c.dropped, c.padded, c.missed = 0, 0, 0, 0, 0
	if c.open { // a packet has one end only: what was begun is sent
		c.flush(1)
	} else {
		c.flush(0)
	}
	c.running = true
	c.begin, c.exposing = now, !c.triggered()
	c.kick()
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
		c.begin, c.exposing = now, true
		c.kick()
	}
}

// take ends the exposure under way: the frame goes into the frame memory, or is dropped when that is full or no host
// is there.
func (c *camera) take() {
	d := c.d
	d.mu.Lock()
	now, exposure := d.clock.Now(), c.exposureTime()
	if !c.exposing || now.Before(c.begin.Add(exposure)) {
		d.mu.Unlock() // stopped, or started anew, since it was looked at
		return
	}
	seq, run, flush := c.sequence, c.runs, c.flushes
	t := c.trailer(seq, c.begin, exposure)
	period := c.periodTime()
	late := !c.triggered() && now.Sub(c.begin) > exposure+lateFrames*period
	c.sequence++
	if c.triggered() {
		c.exposing = false
	} else {
		c.begin = c.begin.Add(period)
	}
	b := c.freeBuffer()
	if b == nil || late || c.host.control&bitRun == 0 {
		c.drop()
		d.mu.Unlock()
		return
	}
	b.used, b.run = true, run
	d.mu.Unlock()

	c.fill(b, seq, t)

	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case run != c.runs: // started anew: not one of its frames
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

// fill builds frame seq in the buffer.
func (c *camera) fill(b *frameBuffer, seq uint64, t fpga.Trailer) {
	pixels := b.data[:c.sensor.FrameBytes()]
	c.sensor.Frame(seq, pixels)
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
	return t
}

func (c *camera) freeBuffer() *frameBuffer {
	for i := range c.buffers {
		if !c.buffers[i].used {
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
// channel begins with the first pixel of a frame.
func (c *camera) detach() {
	for i := range c.nfull {
		if c.full[i].run == c.runs {
			c.drop()
		}
	}
	c.flush(0)
	c.sent, c.open, c.forced = 0, false, false
}

// next implements streamSource. A forced end of packet is one last beat.
func (c *camera) next(n int) (p []byte, eop bool) {
	if c.nfull == 0 || n == 0 {
		return nil, false
	}
	data := c.full[0].data
	c.open = true
	end := min(c.sent+n, len(data))
	if c.forced {
		end = min(c.sent+BeatBytes, end)
		c.last = true
	}
	return data[c.sent:end], c.last || end == len(data)
}

// taken implements streamSource.
func (c *camera) taken(n int) {
	if n == 0 {
		return
	}
	c.sent += n
	whole := c.sent == len(c.full[0].data)
	if !whole && !c.last {
		return
	}
	switch {
	case c.full[0].run != c.runs: // of a run that the counters no longer know
	case whole:
		c.delivered++
	default:
		c.drop()
	}
	c.full[0].used = false
	c.nfull--
	copy(c.full[:], c.full[1:])
	c.sent, c.open, c.forced, c.last = 0, false, false, false
}
