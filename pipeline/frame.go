// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"os"
	"time"
)

// Times are the moments of a frame's life. The zero Time means "not known" or "not yet".
type Times struct {
	ExposureStart time.Time // by the FPGA's clock, mapped to this machine's
	ExposureEnd   time.Time
	Uncertainty   time.Duration // of the exposure times
	Captured      time.Time     // DMA done, as observed by the CPU
	Processed     time.Time     // written by the stage that made the frame
	Replayed      time.Time     // read from a recording, which the times above are from
}

// Arrived is when the frame came, for delays: the end of its DMA, or of its replay.
func (t *Times) Arrived() time.Time {
	if !t.Replayed.IsZero() {
		return t.Replayed
	}
	return t.Captured
}

// Shown is the moment that the frame shows: the start of its exposure, else the end of its DMA, else now. Of a frame that fills it reads
// only the first, which does not change.
func (t *Times) Shown() time.Time {
	switch {
	case !t.ExposureStart.IsZero():
		return t.ExposureStart
	case !t.Captured.IsZero():
		return t.Captured
	}
	return time.Now()
}

// FrameFlags are conditions of one frame.
type FrameFlags uint32

const (
	// FlagPadded says that the sensor delivered less than a frame and the FPGA filled the rest.
	FlagPadded FrameFlags = 1 << iota
	// FlagUnverified says that nothing proves that the bytes are those that left the sensor: the stream has no checksums.
	FlagUnverified
)

// A Fence tells when the work that writes a frame is done.
type Fence interface {
	// Wait returns nil when the frame's bytes are final, the work's error when it failed, or ctx.Err().
	Wait(ctx context.Context) error
}

// A Frame is a lease on a slot: its bytes stay as they are until the last holder has called Release. Only the source or stage
// that leased it from its Pool may write to it, before it is handed on; in a frame that fills (Fill), beyond its Lines. One
// sink may write too: the only reader of packet-ready frames writes headers into the gaps between the payloads.
type Frame struct {
	Format   Format
	Bytes    []byte  // the CPU's view, Format.Size() long; nil in device memory
	Device   uintptr // device pointer to the same memory; 0 when there is none
	Sequence uint64  // counted by the FPGA: a gap is a lost frame
	Times    Times
	Flags    FrameFlags
	CRC      uint32 // CRC-32C of Bytes, as whoever made the frame has computed it; 0: it did not
	Ready    Fence  // nil when the bytes are final already
	Results  []Result

	slot   int
	pool   *Pool
	lease  lease
	file   *os.File
	offset int64

	arrival arrival
}

// Inherit gives f what a frame has of the one that it is made of: Sequence, Times, Flags and Results. The graph does so
// before a stage's Process. Of one that fills it is what is known already; the rest comes by inheritRest.
func (f *Frame) Inherit(from *Frame) {
	if from.Filling() {
		f.inheritKnown(from)
		return
	}
	f.Sequence, f.Times, f.Flags = from.Sequence, from.Times, from.Flags
	f.Results = append(f.Results, from.Results...)
}

// inheritKnown gives f what is known of a frame that fills, or filled until a moment ago.
func (f *Frame) inheritKnown(from *Frame) {
	f.Sequence, f.Times.ExposureStart, f.Times.Uncertainty = from.Sequence, from.Times.ExposureStart, from.Times.Uncertainty
}

// inheritRest gives f what inheritKnown does not, once the frame that it is made of is complete.
func (f *Frame) inheritRest(from *Frame) {
	f.Times.ExposureEnd, f.Times.Captured, f.Flags = from.Times.ExposureEnd, from.Times.Captured, from.Flags
	f.Results = append(f.Results, from.Results...)
}
