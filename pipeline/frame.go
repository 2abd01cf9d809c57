// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"fmt"
	"os"
	"time"
)

// Times holds the times of the steps of a frame. The zero Time means "unknown" or "not yet".
type Times struct {
	ExposureStart time.Time // by the FPGA's clock, mapped to this machine's clock
	ExposureEnd   time.Time
	Uncertainty   time.Duration // of the exposure times
	Captured      time.Time     // end of DMA, as observed by the CPU
	Processed     time.Time     // end of the stage that made the frame
	Replayed      time.Time     // when a recorded frame was played; its other times are then as recorded, or later
	Reference     time.Time     // start of the exposure by the clock that the camera's follows, in UTC; see Absolute
	Clock         *ClockReport  // that clock, when the frame came; nil: the camera's follows none
}

// Arrived returns the time from which delays are measured: the end of the frame's DMA, or of its replay.
func (t *Times) Arrived() time.Time {
	if !t.Replayed.IsZero() {
		return t.Replayed
	}
	return t.Captured
}

// Shown returns the moment that the frame shows, for others than this program: the start of its exposure if known, by
// the clock that the camera's follows if there is one, otherwise the end of its DMA if known, otherwise the current
// time. It is safe for a filling frame whose ExposureStart is set, because that field and Reference no longer change.
func (t *Times) Shown() time.Time {
	switch {
	case !t.Reference.IsZero():
		return t.Reference
	case !t.ExposureStart.IsZero():
		return t.ExposureStart
	case !t.Captured.IsZero():
		return t.Captured
	}
	return time.Now()
}

// Shift returns what is added to this machine's times to get those of the clock that the camera's follows; 0: there is
// none.
func (t *Times) Shift() time.Duration {
	if t.Reference.IsZero() {
		return 0
	}
	return t.Reference.Sub(t.ExposureStart.Round(0))
}

// Absolute returns the times for others than this program: by the clock that the camera's follows, if there is one.
func (t Times) Absolute() Times {
	shift := t.Shift()
	for _, at := range []*time.Time{&t.ExposureStart, &t.ExposureEnd, &t.Captured, &t.Processed, &t.Replayed} {
		if !at.IsZero() {
			*at = at.Add(shift)
		}
	}
	return t
}

// FrameFlags are the conditions that apply to a frame.
type FrameFlags uint32

const (
	// FlagPadded means that the sensor delivered less than a frame and the FPGA filled in the rest.
	FlagPadded FrameFlags = 1 << iota
	// FlagUnverified means that the stream has no checksums, so the bytes may differ from those that left the sensor.
	FlagUnverified
)

// A Fence signals the completion of asynchronous work that writes a frame.
type Fence interface {
	// Wait returns nil when the frame's bytes are final, the work's error if it failed, or ctx.Err().
	Wait(ctx context.Context) error
}

// A Frame is a lease on a slot. Its final bytes do not change until the last holder has called Release. Only the source
// or stage that leased it from its Pool may write to it, and only before handing it on, by work for which Ready waits,
// or, in a filling frame (Fill), beyond its Lines. There is one exception: the only reader of packet-ready frames, a
// sink, writes headers into the gaps between the payloads.
type Frame struct {
	Format   Format
	Bytes    []byte  // the CPU's view, Format.Size() long, or shorter if the pixels are MJPEG; nil in device memory
	Device   uintptr // device pointer to the same memory; 0 if there is none
	Sequence uint64  // counted by the FPGA or the source; a gap means lost frames
	Group    uint64  // number of the frame among those that belong together (Member); 0: it belongs to none
	Times    Times
	Flags    FrameFlags
	CRC      uint32 // CRC-32C of Bytes, if the maker of the frame computed it; otherwise 0
	Ready    Fence  // nil if the bytes are already final
	Results  []Result

	index  int // in the pool
	slot   int // see Slot
	viewed *Frame
	pool   *Pool
	lease  lease
	file   *os.File
	offset int64

	arrival arrival
	emitter *sourceNode // what emitted the frame while it was filling, if its source has a Member; else nil
}

// CheckFormat returns an error unless the frame has the planned format, in everything that affects the bytes, and as many
// of them; the frame rate does not.
func (f *Frame) CheckFormat(planned Format) error {
	planned.Rate = f.Format.Rate
	if f.Format != planned {
		return fmt.Errorf("is %s, planned %s", f.Format, planned)
	}
	if planned.Pixel != MJPEG && len(f.Bytes) < planned.Size() {
		return fmt.Errorf("of %s has %d bytes, needs %d", planned, len(f.Bytes), planned.Size())
	}
	return nil
}

// Inherit copies Sequence, Group, Times and Flags from the source frame to f, and appends its Results to those of f. The graph
// does so before it calls a stage's Process. From a filling frame it copies only the fields that are already known;
// inheritRest copies the others.
func (f *Frame) Inherit(from *Frame) {
	if from.Filling() {
		f.inheritKnown(from)
		return
	}
	f.Sequence, f.Group, f.Times, f.Flags = from.Sequence, from.Group, from.Times, from.Flags
	f.Results = append(f.Results, from.Results...)
}

// inheritKnown copies the metadata that is known while the source frame is filling.
func (f *Frame) inheritKnown(from *Frame) {
	f.Sequence, f.Group = from.Sequence, from.Group
	f.Times.ExposureStart, f.Times.Uncertainty = from.Times.ExposureStart, from.Times.Uncertainty
	f.Times.Reference, f.Times.Clock = from.Times.Reference, from.Times.Clock
}

// inheritRest copies the metadata that becomes known only when the source frame is complete.
func (f *Frame) inheritRest(from *Frame) {
	f.Times.ExposureEnd, f.Times.Captured, f.Flags = from.Times.ExposureEnd, from.Times.Captured, from.Flags
	f.Results = append(f.Results, from.Results...)
}
