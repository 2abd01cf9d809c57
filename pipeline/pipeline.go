// Package pipeline is the flow of frames from a source through stages to outputs: formats, frames that are leases
// on pool slots, bounded queues with a drop policy, exact accounting and latency by stage.
//
// It imports no hardware. A source leases a slot and emits it; the graph hands it to stages and outputs; when the
// last of them has released it the slot is free again. Nothing is copied, and nothing is allocated per frame.
package pipeline

import "context"

// A Source emits frames of one format.
type Source interface {
	Format() Format
	// Run emits frames until ctx ends or the source has no more; then it returns nil. emit takes over the lease.
	Run(ctx context.Context, emit func(*Frame)) error
}

// A Stage makes frames out of a frame.
type Stage interface {
	// Plan says whether the stage can make all the wanted formats from in, and prepares it. It may be called
	// again, never at the same time as Process.
	Plan(in Format, want []Format) error
	// Process reads in and writes outs, which stand in the order of Plan's want. An element is nil where nobody
	// wants that format of this frame. A stage that works asynchronously sets the outs' Ready.
	Process(ctx context.Context, in *Frame, outs []*Frame) error
}

// A Sink consumes frames.
type Sink interface {
	Accepts(Format) bool
	// Run takes frames from q and releases them until q.Next returns an error.
	Run(ctx context.Context, q *Queue) error
}

// DeviceReader is implemented by stages and sinks that never read a frame with the CPU. All others are refused on
// memory that the CPU must not read.
type DeviceReader interface{ ReadsOnDevice() bool }

// Slotted is implemented by sources whose slots are limited by hardware: the graph refuses an output that could hold
// so many of them that the source would starve.
type Slotted interface{ Slots() int }

// Wanter is implemented by stages that can stand behind another stage. Wants returns the format that it wants that one to
// make of frames in.
type Wanter interface {
	Wants(in Format) (Format, error)
}

// Holder is implemented by sinks and stages that hold more than one frame at a time, besides those that wait in the queue.
type Holder interface{ Holds() int }

// SlotUser is implemented by sinks that must know the memory of their frames beforehand, to pin it for a device.
// UseSlot is called once for each slot, with the index that Frame.Slot will give, before a frame comes in it. Such a
// sink is attached to a stage; a source's slots belong to the source.
type SlotUser interface {
	UseSlot(index int, s Slot) error
}
