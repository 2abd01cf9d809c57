// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/videodev"
)

// TestV4L2Unplugged checks that a camera that comes back under another name is found, and that its frames continue.
func TestV4L2Unplugged(t *testing.T) {
	for _, user := range []bool{true, false} {
		d := newDouble("RG10")
		d.user = user
		const giveUp = 50 * time.Millisecond
		r := runDouble(t, d, V4L2Config{Slots: 4, GiveUp: giveUp})
		r.frame(t, d, nil)
		first := r.next(t) // stays held
		d.unplug()
		missed := func() uint64 { return r.camera.Status().Counters[Reopening.String()] }
		eventually(t, "the camera is missed for longer than a fault may last", func() bool { return missed() > 5 || r.camera.State() == Ended })
		d.plug("/dev/video7")
		r.frame(t, d, nil)
		f := r.next(t)
		if f.Sequence <= first.Sequence || r.camera.Status().Counters["lost"] != f.Sequence-first.Sequence-1 {
			t.Errorf("sequence %d after %d, %v", f.Sequence, first.Sequence, r.camera.Status().Counters)
		}
		if !bytes.Equal(f.Bytes, d.expected(0, f.Format)) {
			t.Error("other pixels")
		}
		first.Release()
		f.Release()
		if d.crashed {
			t.Error("the device was closed while its driver took it away")
		}
	}
}

// TestV4L2Signal checks that an input is set to its signal, and that a signal that is lost is waited for, for longer than a fault
// may last.
func TestV4L2Signal(t *testing.T) {
	d := newDouble("UYVY")
	d.signal = [2]uint32{32, 24}
	r := runDouble(t, d, V4L2Config{Slots: 4, GiveUp: 50 * time.Millisecond})
	if f := r.camera.Format(); f.Width != 32 || f.Height != 24 {
		t.Errorf("%s", f)
	}
	r.frame(t, d, nil)
	r.next(t).Release()
	d.mu.Lock()
	d.fails[videodev.QueryTimings], d.events = unix.ENOLINK, append(d.events, videodev.EventSourceChange)
	d.wake.Set()
	d.mu.Unlock()
	eventually(t, "the signal is missed for longer than a fault may last", func() bool {
		return r.camera.Status().Counters[Reopening.String()] > 5 || r.camera.State() == Ended
	})
	d.mu.Lock()
	clear(d.fails)
	d.mu.Unlock()
	r.frame(t, d, nil)
	r.next(t).Release()
}

// TestV4L2OtherCameraIsNotTaken checks that a camera is not replaced by another one that has got its name.
func TestV4L2OtherCameraIsNotTaken(t *testing.T) {
	d := newDouble("RG10")
	c := openDouble(t, d, V4L2Config{Slots: 2})
	if err := c.closeSession(); err != nil {
		t.Fatal(err)
	}
	d.place, d.serial = "/devices/elsewhere", "9:9:9"
	if err := c.open(t.Context()); !errors.Is(err, videodev.ErrNoDevice) {
		t.Errorf("another camera: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestV4L2Recovers checks that the stream is restarted or the device reopened after each fault, without a lost slot.
func TestV4L2Recovers(t *testing.T) {
	faults := map[string]struct {
		cause func(*videoDouble)
		state State
	}{
		"a broken queue":        {func(d *videoDouble) { d.broken = true }, Reopening},
		"a changed picture":     {func(d *videoDouble) { d.events = append(d.events, videodev.EventSourceChange) }, Reopening},
		"an ended stream":       {func(d *videoDouble) { d.events = append(d.events, videodev.EventEnd) }, Reopening},
		"a request that failed": {func(d *videoDouble) { d.fails[videodev.Dequeue] = unix.EIO }, Reopening},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			d := newDouble("GREY")
			r := runDouble(t, d, V4L2Config{Slots: 4})
			r.frame(t, d, nil)
			r.next(t).Release()
			d.mu.Lock()
			fault.cause(d)
			d.wake.Set()
			d.mu.Unlock()
			d.frame(nil) // wakes a camera that looks only for frames
			eventually(t, "the fault is seen", func() bool { return r.camera.Status().Counters[fault.state.String()] > 0 })
			d.mu.Lock()
			d.broken = false
			clear(d.fails)
			d.mu.Unlock()
			for range 9 { // more than slots
				r.frame(t, d, nil)
				r.next(t).Release()
			}
		})
	}
	t.Run("silence", func(t *testing.T) {
		d := newDouble("GREY")
		r := runDouble(t, d, V4L2Config{Slots: 4, FrameTimeout: time.Millisecond})
		eventually(t, "a restart", func() bool { return r.camera.Status().Counters[Restarting.String()] > 0 })
		eventually(t, "a new session", func() bool { return r.camera.Status().Counters[Reopening.String()] > 0 })
	})
}

// TestV4L2HangingDriver checks that Run ends and says why if the driver does not return, that the memory that it may still
// write to is kept, and that all is well when it returns.
func TestV4L2HangingDriver(t *testing.T) {
	d := newDouble("GREY")
	c := openDouble(t, d, V4L2Config{Slots: 4})
	hang := make(chan struct{})
	d.mu.Lock()
	d.hangs[videodev.StreamOff] = hang
	d.mu.Unlock()
	ctx, stop := context.WithCancel(t.Context())
	var frames atomic.Int32
	ended := make(chan error, 1)
	go func() {
		ended <- c.Run(ctx, func(f *pipeline.Frame) { f.Release(); frames.Add(1) })
	}()
	eventually(t, "a frame", func() bool { d.frame(nil); return frames.Load() > 0 })
	stop()
	if err := <-ended; !errors.Is(err, ErrHangs) || !strings.Contains(err.Error(), "VIDIOC_STREAMOFF of /dev/video0") {
		t.Errorf("Run: %v", err)
	}
	if err := c.Close(); !errors.Is(err, ErrHangs) || len(c.memory) != 4 {
		t.Errorf("Close while the driver hangs: %v", err)
	}
	d.mu.Lock()
	clear(d.hangs)
	d.mu.Unlock()
	close(hang)
	eventually(t, "the driver returns", func() bool { return c.stillHung() == nil })
	if err := c.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// TestV4L2HangingControl checks that a control call that hangs is found although others ask for the controls again and again,
// that the session is given up when it is to end, and that all is well when the driver returns.
func TestV4L2HangingControl(t *testing.T) {
	d := newDouble("GREY")
	d.controls = []*doubleControl{{id: videodev.ExposureAbsolute, name: "Exposure", kind: 1, min: 1, max: 1000, step: 1}}
	c := openDouble(t, d, V4L2Config{Slots: 2})
	c.hangAfter = time.Second
	hang := make(chan struct{})
	d.mu.Lock()
	d.hangs[videodev.SetControls] = hang
	d.mu.Unlock()
	set := make(chan error, 1)
	go func() { _, err := c.SetExposure(time.Millisecond, 0); set <- err }()
	eventually(t, "the call hangs", func() bool {
		if what, _ := c.current().settings.watched.call(); what == "" {
			return false
		}
		go func() { _, _, _ = c.Exposure() }() // the others
		time.Sleep(c.hangAfter / 40)
		return len(set) > 0
	})
	if err := <-set; !errors.Is(err, ErrHangs) || !strings.Contains(err.Error(), "VIDIOC_S_EXT_CTRLS") {
		t.Errorf("SetExposure: %v", err)
	}
	if err := c.Close(); !errors.Is(err, ErrHangs) || len(c.memory) != 2 {
		t.Errorf("Close while the driver hangs: %v", err)
	}
	close(hang)
	eventually(t, "the driver returns", func() bool { return c.stillHung() == nil })
	if err := c.Close(); err != nil || d.opened != 0 {
		t.Errorf("Close: %v, %d files are open", err, d.opened)
	}
}

// TestV4L2EndsWhileGivenUp ends work just when it is given up, and just before: what it has left is freed in the first case,
// and its result counts in the second.
func TestV4L2EndsWhileGivenUp(t *testing.T) {
	c := openDouble(t, newDouble("GREY"), V4L2Config{Slots: 2})
	c.hangAfter = 0
	watch, given, ended, late := &watchedDevice{}, make(chan struct{}), make(chan struct{}), make(chan struct{})
	watch.in(videodev.StreamOff)
	err := c.bounded(t.Context(), &boundedWork{
		do:    func() error { <-given; close(ended); return nil },
		given: func(*hungCall) { close(given); <-ended },
		late:  func() error { close(late); return nil },
	}, watch)
	if !errors.Is(err, ErrHangs) {
		t.Error(err)
	}
	select {
	case <-late:
	case <-time.After(time.Minute):
		t.Error("what the work has left is not freed")
	}
	w := &boundedWork{do: func() error { return errEnded }, given: func(*hungCall) { t.Error("given up after its end") }}
	if err := w.run(); !errors.Is(err, errEnded) || w.giveUp(nil) {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestV4L2RefusesWhatIsNotOffered checks errors: they say what the device has.
func TestV4L2RefusesWhatIsNotOffered(t *testing.T) {
	for want, c := range map[string]struct {
		change func(*videoDouble)
		cfg    V4L2Config
	}{
		"it makes RG10 64x48 of RG10 320x200: it offers RG10 64x48 at 30": {nil, V4L2Config{Width: 320, Height: 200}},
		"no UYVY: it offers RG10 64x48 at 30":                             {nil, V4L2Config{Pixel: pipeline.UYVY}},
		"60 frames a second: it makes 30 of them":                         {nil, V4L2Config{Rate: pipeline.Rate{Num: 60, Den: 1}}},
		"another process uses the camera: motion (process 12): end it": {func(d *videoDouble) {
			d.fails[videodev.MakeBuffers], d.holders = unix.EBUSY, []videodev.Holder{{Process: 12, Name: "motion"}}
		}, V4L2Config{}},
		"this process itself uses the camera already": {func(d *videoDouble) {
			d.fails[videodev.SetFormat], d.holders = unix.EBUSY, []videodev.Holder{{Process: os.Getpid(), Times: 2}}
		}, V4L2Config{}},
		"another process uses the camera (which one, only root can see)": {func(d *videoDouble) {
			d.fails[videodev.SetFormat], d.holders, d.hidden = unix.EBUSY, []videodev.Holder{{Process: os.Getpid(), Times: 1}}, true
		}, V4L2Config{}},
		"no other process has it open: its driver, or another device": {func(d *videoDouble) {
			d.fails[videodev.SetFormat], d.holders = unix.EBUSY, []videodev.Holder{{Process: os.Getpid(), Times: 1}}
		}, V4L2Config{}},
		"no signal that the input takes: none arrives": {func(d *videoDouble) { d.fails[videodev.QueryTimings] = unix.ENOLINK }, V4L2Config{}},
		"no signal that the input takes: it is not":    {func(d *videoDouble) { d.fails[videodev.QueryTimings] = unix.ENOLCK }, V4L2Config{}},
		"no signal that the input takes: it is beyond": {func(d *videoDouble) { d.fails[videodev.QueryTimings] = unix.ERANGE }, V4L2Config{}},
		"VIDIOC_S_DV_TIMINGS 64x48: invalid": {func(d *videoDouble) {
			d.signal, d.fails[videodev.SetTimings] = [2]uint32{64, 48}, unix.EINVAL
		}, V4L2Config{}},
		"VIDIOC_G_FMT: the driver does not tell the format that it has set": {
			func(d *videoDouble) { d.fails[videodev.GetFormat] = unix.EINVAL }, V4L2Config{Width: 64, Height: 48, Pixel: pipeline.RGGB10},
		},
		"after rate and controls were set: impossible format: it makes RG10 32x48 of RG10 64x48": {
			func(d *videoDouble) { d.after = map[uintptr]func(){videodev.SetParameters: func() { d.width = 32 }} }, V4L2Config{Rate: pipeline.Rate{Num: 30, Den: 1}},
		},
		"control brightness: there is none": {nil, V4L2Config{Controls: map[string]string{"brightness": "1"}}},
	} {
		d := newDouble("RG10")
		if c.change != nil {
			c.change(d)
		}
		c.cfg.Device, c.cfg.Memory = "/dev/video0", hostMemory(t)
		_, err := newV4L2Camera(c.cfg, d.machine())
		if err == nil || !strings.Contains(err.Error(), want) || d.opened != 0 {
			t.Errorf("%s: %v, %d files left open", want, err, d.opened)
		}
	}
}

// TestV4L2Graph checks that the error of a stream that does not start has the commands that repair the media graph.
func TestV4L2Graph(t *testing.T) {
	good := videodev.PadFormat{Code: videodev.BusCode(videodev.Code("RG10")), Width: 64, Height: 48}
	for want, change := range map[string]func(*videoDouble){
		`media-ctl -d /dev/media0 -l '"imx219 1-0010":0->"bridge":0[1]'`: func(d *videoDouble) { d.off = true },
		`media-ctl -d /dev/media0 -V '"imx219 1-0010":0[fmt:SRGGB10_1X10/64x48]'`: func(d *videoDouble) {
			d.pads[-1] = videodev.PadFormat{Code: good.Code, Width: 32, Height: 48}
		},
	} {
		d := newDouble("RG10")
		d.sensor, d.pads = true, map[int]videodev.PadFormat{-1: good, 0: good}
		change(d)
		c := openDouble(t, d, V4L2Config{Slots: 2, GiveUp: time.Nanosecond})
		err := c.Run(t.Context(), func(f *pipeline.Frame) { f.Release() })
		if !errors.Is(err, pipeline.ErrGivenUp) || !errors.Is(err, unix.EPIPE) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s: %v", want, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestV4L2HeldWhenTheWayChanges holds a frame that was copied while the camera comes back with a driver that takes the
// slots: that slot is not given to the driver.
func TestV4L2HeldWhenTheWayChanges(t *testing.T) {
	d := newDouble("GREY")
	d.refuses = unix.ENOMEM
	r := runDouble(t, d, V4L2Config{Slots: 3})
	r.frame(t, d, nil)
	held := r.next(t)
	want := bytes.Clone(held.Bytes)
	if how := r.camera.How(); !strings.HasPrefix(how, "MMAP") {
		t.Errorf("frames come by %s", how)
	}
	d.unplug()
	eventually(t, "the camera is missed", func() bool { return r.camera.State() == Reopening })
	d.mu.Lock()
	d.refuses = 0
	d.mu.Unlock()
	d.plug("/dev/video0")
	for range 6 {
		r.frame(t, d, nil)
		r.next(t).Release()
	}
	if how := r.camera.How(); how != "USERPTR" || !bytes.Equal(held.Bytes, want) {
		t.Errorf("frames come by %s, and the held one has changed: %t", how, !bytes.Equal(held.Bytes, want))
	}
	held.Release()
}

// TestV4L2TriggeredLosesNothingMeanwhile checks that the time without a stream is no loss of a camera that is triggered.
func TestV4L2TriggeredLosesNothingMeanwhile(t *testing.T) {
	d := newDouble("GREY")
	r := runDouble(t, d, V4L2Config{Slots: 3, Triggered: true, Rate: pipeline.Rate{Num: 30, Den: 1}})
	r.frame(t, d, nil)
	r.next(t).Release()
	d.unplug()
	eventually(t, "the camera is missed", func() bool { return r.camera.State() == Reopening })
	time.Sleep(200 * time.Millisecond) // six periods
	d.plug("/dev/video0")
	r.frame(t, d, nil)
	f := r.next(t)
	if lost := r.camera.Status().Counters["lost"]; lost != 0 || f.Sequence != 1 {
		t.Errorf("frame %d, %d lost", f.Sequence, lost)
	}
	f.Release()
}
