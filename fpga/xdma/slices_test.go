// SPDX-License-Identifier: Apache-2.0

package xdma

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
)

// Six slices of 16 lines each, read out over most of the period.
const sliceBytes = 16 * 128

var slicedSensor = model.SensorConfig{Width: 64, Height: 96, Period: 20 * time.Millisecond, Readout: 16 * time.Millisecond, Exposure: 2 * time.Millisecond}

// TestSlices checks that Next reports a frame's slices as they arrive, each with the stated bytes, with MSI-X, with MSI
// and in poll mode.
func TestSlices(t *testing.T) {
	for _, segment := range []int{1 << 20, 4096, 960} {
		for name, msi := range map[string]int{"MSI-X": 0, "a vector of MSI": 1, "two of MSI": 2, "all of MSI": 32, "poll": -1} {
			t.Run(fmt.Sprint(segment, " ", name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cam := newCameraOf(t, slicedSensor, msi, 4, segment, sliceBytes)
					cam.start(t)
					cam.takeSlices(t, 10, msi < 0)
				})
			})
		}
	}
}

// TestSlicesBySharedVectors checks that the slices of two cameras arrive in time, whether their vectors are their own
// or shared with three busy channels.
func TestSlicesBySharedVectors(t *testing.T) {
	for _, msi := range []int{0, 1, 2, 3, 5, -1} {
		t.Run(fmt.Sprint(msi), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBusyOf(t, slicedSensor, msi, sliceBytes)
				var all sync.WaitGroup
				for _, c := range b.cameras {
					c.start(t)
					all.Go(func() { c.takeSlices(t, 30, msi < 0) })
				}
				all.Go(func() { b.transfer(t, fpga.H2C, 0, 200) })
				all.Go(func() { b.transfer(t, fpga.H2C, 1, 200) })
				all.Go(func() { b.transfer(t, fpga.C2H, 0, 200) })
				all.Wait()
			})
		})
	}
}

// takeSlices receives n frames, starting with the first, slice by slice, each before the next one is there, and frees
// them.
func (c *camera) takeSlices(t *testing.T, n int, poll bool) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if c.device.cfg.Poll != poll {
		t.Errorf("poll mode %t", c.device.cfg.Poll)
	}
	want, cfg := make([]byte, c.sensor.FrameBytes()), c.sensor.Config()
	patience := time.Duration(sliceBytes*3/2) * cfg.Readout / time.Duration(len(want)) // lines come eight at a time
	told, filled, began, at := 0, 0, uint64(0), time.Now()
	for frames := uint64(0); frames < uint64(n); {
		done, err := c.ring.Next(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		c.sensor.Frame(frames, want)
		if done.Filled <= filled && !done.Done || !bytes.Equal(c.slots[done.Slot].Bytes[:done.Filled], want[:done.Filled]) {
			t.Errorf("frame %d: %d bytes after %d are told of, or they are wrong", frames, done.Filled, filled)
			return
		}
		if took := time.Since(at); told > 0 && took > patience {
			t.Errorf("frame %d: it took %v to %d bytes, want %v", frames, took, done.Filled, patience)
		}
		told, at = told+1, time.Now()
		open, start := c.OpenFrame()
		if filled = done.Filled; !done.Done {
			if open != frames {
				t.Errorf("frame %d leaves, and OPEN_SEQUENCE is %d", frames, open)
			}
			began = start
			continue
		}
		tr, err := fpga.ParseTrailer(done.Trailer)
		if err != nil || tr.Start != began || tr.Sequence != frames || tr.LastLine-tr.FirstLine < uint64(14*time.Millisecond) || filled != len(want) {
			t.Errorf("%+v, %d bytes: %v", tr, filled, err)
		}
		if told < 5 { // the last of six slices may come together with the trailer
			t.Errorf("frame %d was told of %d times", frames, told)
		}
		frames, told, filled = frames+1, 0, 0
		if err := c.ring.Free(done.Slot); err != nil {
			t.Error(err)
		}
	}
	if s := c.ring.Stats(); s.Missed != 0 {
		t.Errorf("a tick has found what no interrupt told of: %+v", s)
	}
}

// TestSlicesThatCannotBe checks that invalid slice sizes are rejected.
func TestSlicesThatCannotBe(t *testing.T) {
	cam := newCamera(t, 64, 8, 2, 4096, time.Millisecond)
	if _, err := cam.device.NewRing(RingConfig{Slots: cam.slots, Trailer: fpga.TrailerSize, Slice: model.BeatBytes + 1}); !errors.Is(err, ErrMemory) {
		t.Error(err)
	}
}
