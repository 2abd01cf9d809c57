// SPDX-License-Identifier: Apache-2.0

package xdma

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
)

// Injects every fault of the model, several times in each of its variants, into a stream of frames. Either the ring
// delivers the frame that its trailer names, or Next reports the fault in time, and a stop and a start recover. F10 and
// F11 are invisible to the driver: the trailer's CRC and the pin reveal them.
func TestInjectedFaults(t *testing.T) {
	for _, c := range []struct {
		id   model.FaultID
		want []error // one of these; none: no restart is needed
	}{
		{model.F2, nil},
		{model.F4, []error{ErrGone, ErrReset}},
		{model.F5, []error{ErrMagic}},
		{model.F6, nil},
		{model.F7, nil},
		{model.F8, []error{ErrStream}},
		{model.F9, nil},
		{model.F12, []error{ErrReset}},
	} {
		for name, options := range map[string][]func(*Config){"interrupts": nil, "poll": {polling}} {
			t.Run(fmt.Sprint(c.id, "/", name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cam := newCamera(t, 64, 48, 4, 960, 10*time.Millisecond, options...)
					cam.start(t)
					for range 12 {
						cam.receiveFrames(t, 3)
						if err := cam.model.Inject(c.id); err != nil {
							t.Fatal(err)
						}
						if cam.survive(t, c.want) {
							cam.revive(t)
						}
					}
					cam.receiveFrames(t, 5)
				})
			})
		}
	}
}

// survive takes ten frames, or ends with one of the expected errors.
func (c *camera) survive(t *testing.T, want []error) (restart bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	for range 10 {
		done, err := c.ring.Next(ctx)
		if err != nil {
			for _, w := range want {
				if errors.Is(err, w) {
					return true
				}
			}
			t.Fatalf("%v, want one of %v; %+v", err, want, c.ring.Stats())
		}
		tr, err := fpga.ParseTrailer(done.Trailer)
		if err != nil {
			if len(want) > 0 { // the stream is out of step, and package capture would restart it
				return true
			}
			t.Fatal(err)
		}
		pixels := make([]byte, c.sensor.FrameBytes())
		c.sensor.Frame(tr.Sequence, pixels)
		if !bytes.Equal(pixels, c.slots[done.Slot].Bytes) {
			t.Fatalf("frame %d has wrong bytes", tr.Sequence)
		}
		if err := c.ring.Free(done.Slot); err != nil {
			if len(want) > 0 {
				return true
			}
			t.Fatal(err)
		}
	}
	return false
}

// revive stops and starts the ring and the camera until the device is back.
func (c *camera) revive(t *testing.T) {
	t.Helper()
	for range 50 {
		stopErr := c.ring.Stop()
		var all []int
		for i := range c.slots {
			all = append(all, i)
		}
		err := c.ring.Start(all)
		if err == nil {
			if err = c.Configure(c.config); err == nil {
				if err = c.Start(); err == nil {
					return
				}
			}
		}
		if errors.Is(stopErr, ErrBusy) {
			t.Fatal(stopErr)
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("it does not come back")
}
