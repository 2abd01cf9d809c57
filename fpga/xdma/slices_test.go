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

// TestSlices: Next tells of a frame's slices as they come, each with the bytes that it says, in interrupt and in poll mode.
func TestSlices(t *testing.T) {
	for _, segment := range []int{1 << 20, 4096, 1008} {
		for _, poll := range []bool{false, true} {
			t.Run(fmt.Sprint(segment, poll), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { slices(t, segment, poll) })
			})
		}
	}
}

func slices(t *testing.T, segment int, poll bool) {
	const slice = 16 * 128 // bytes: 16 lines
	sensor := model.SensorConfig{Width: 64, Height: 96, Period: 20 * time.Millisecond, Readout: 16 * time.Millisecond, Exposure: 2 * time.Millisecond}
	cam := newCameraOf(t, sensor, 4, segment, slice, func(c *Config) { c.Poll = poll })
	cam.start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	want := make([]byte, cam.sensor.FrameBytes())
	told, filled, began := 0, 0, uint64(0)
	for frames := 0; frames < 10; {
		done, err := cam.ring.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cam.sensor.Frame(uint64(frames), want)
		if done.Filled <= filled && !done.Done || !bytes.Equal(cam.slots[done.Slot].Bytes[:done.Filled], want[:done.Filled]) {
			t.Fatalf("frame %d: %d bytes after %d are told of, or they are wrong", frames, done.Filled, filled)
		}
		told++
		open, start := cam.OpenFrame()
		if filled = done.Filled; !done.Done {
			if open != uint64(frames) {
				t.Fatalf("frame %d leaves, and OPEN_SEQUENCE is %d", frames, open)
			}
			began = start
			continue
		}
		tr, err := fpga.ParseTrailer(done.Trailer)
		if err != nil || tr.Start != began || tr.Sequence != uint64(frames) || tr.LastLine-tr.FirstLine < uint64(14*time.Millisecond) || filled != len(want) {
			t.Fatalf("%+v, %d bytes: %v", tr, filled, err)
		}
		if told < 5 { // of six slices the last may come with the trailer
			t.Errorf("frame %d was told of %d times", frames, told)
		}
		frames, told, filled = frames+1, 0, 0
		if err := cam.ring.Free(done.Slot); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSlicesThatCannotBe are refused.
func TestSlicesThatCannotBe(t *testing.T) {
	cam := newCamera(t, 64, 8, 2, 4096, time.Millisecond)
	if _, err := cam.device.NewRing(RingConfig{Slots: cam.slots, Trailer: fpga.TrailerSize, Slice: model.BeatBytes + 1}); !errors.Is(err, ErrMemory) {
		t.Error(err)
	}
}
