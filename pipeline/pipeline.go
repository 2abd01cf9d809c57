// SPDX-License-Identifier: Apache-2.0

package pipeline

import "context"

// A Source emits frames of one format.
type Source interface {
	Format() Format
	// Run emits frames until ctx ends or the source has no more, and then returns nil; otherwise it returns the error
	// that ended it. emit takes over the caller's lease. A frame may be emitted while it is still filling (Frame.Fill);
	// the source must then keep its own lease until Finish, and finish all such frames before Run returns.
	Run(ctx context.Context, emit func(*Frame)) error
	// Status may be called at any time and from any goroutine, also while the source is not running. It is not called
	// per frame.
	Status() SourceStatus
}

// SourceStatus is a source's report about itself.
type SourceStatus struct {
	// Slots is the number of frames that the source has memory for, if hardware limits it; 0 disables the check. The
	// graph refuses an output that could hold so many frames that the source would run out of slots.
	Slots int
	// Idle is true if the source has nothing to emit and this is not a fault, as with an untriggered camera. A source
	// that is not idle and emits nothing for longer than its frame period has stalled.
	Idle bool
	// Waits is true if the source can wait: emit then blocks until all consumers have room for the frame, and stages
	// wait likewise, so that no frame is lost for lack of room. A camera cannot wait. The graph reads Waits once,
	// before Run.
	Waits bool
	// How tells how frames come into the slots, if there is more than one way.
	How string
	// Counters are the source's own running totals by name: frames lost before they could be emitted, by reason, and
	// events in the source. It may be nil. The map belongs to the caller.
	Counters map[string]uint64
	// Refused is the number of frames that have reached the source damaged so far, whether they were emitted while they
	// were filling, or not at all.
	Refused uint64
}

// A Member is a source's part in a group of sources, whose frames of one moment get one number (package group). Its
// methods are called on the source's goroutine, must not block, and delay no frame.
type Member interface {
	// Take sets Group of a frame that is about to be emitted, also of a filling one. lost and damaged are the numbers of
	// frames that are missing before it: lost on the way, or refused because they were damaged.
	Take(f *Frame, lost, damaged uint64)
	// Finished is called with each frame that was filling when Take got it, when it is complete, or turns out to be damaged.
	Finished(f *Frame, damaged bool)
	// Ended is called when Run of the source has returned.
	Ended()
}

// A Stage makes frames from a frame.
type Stage interface {
	// Needs returns the stage's requirements. in is the format that the source delivers; for a stage behind another
	// stage it is the input format of that other stage. Needs is called once, before Plan.
	Needs(in Format) (StageNeeds, error)
	// Plan prepares the stage to make all the wanted formats from in, and returns an error if it cannot. It may be
	// called again, but never while Process runs.
	Plan(in Format, want []Format) error
	// Process reads in and writes outs, which have the order of Plan's want. An element is nil if no consumer wants
	// that format of this frame; the others already have in's Sequence, Group, Times, Flags and Results. Process sets
	// Times.Processed, unless it passes frames on, and appends to Results. A stage that works asynchronously sets the
	// Ready fence of outs.
	Process(ctx context.Context, in *Frame, outs []*Frame) error
}

// StageNeeds holds a stage's requirements.
type StageNeeds struct {
	// From is the format that the stage needs from the stage before it. A zero Pixel means that the stage reads only
	// from sources, in whatever format they deliver. The graph sets Rate.
	From Format
	// Holds is the maximum number of frames that the stage holds at a time, not counting those in its queue; 0 means 1.
	Holds int
	// OnDevice is true if the CPU never reads the frames. Only such a stage may be given memory that the CPU must not
	// read.
	OnDevice bool
	// Passes is the maximum number of frames that a stage which passes its frames on, with more Results, may be working
	// on at a time, at least 3 and part of Holds; 0 means that it makes frames of its own. Such a stage makes only its
	// input format, and outs has one element, which is a lease on the memory of in: Process must not write to it. The
	// frame is handed on when its Ready fence has passed, in the order of the input; if that fails with ErrDropped, the
	// frame is dropped, which is no fault.
	Passes int
	// Await waits until a stage that passes its frames on is ready for the next one, or ctx ends. It is called before
	// Process, for as long as it takes, while outputs may come and go. nil: the stage is always ready.
	Await func(ctx context.Context)
	// Slices is true if Process can read a frame that is still filling, up to its Lines, and calls Arrive on outs as it
	// makes lines. The graph calls Fill and Finish on outs. Stages without Slices get frames only when they are
	// complete.
	Slices bool
}

// A Sink consumes frames.
type Sink interface {
	// Needs returns the sink's requirements. It is called once, when the sink is attached.
	Needs() SinkNeeds
	// Run takes frames from q and returns each with q.Done or q.Fail, until q.Next returns an error. Run may return
	// that error, alone or joined with its own; the graph recognises it as the normal end. Any other error is a failure
	// of the output (see OutputConfig.Reopen). When ctx ends, Run must return within seconds, whatever it is waiting
	// for, because a reload and the shutdown of the service wait for it.
	Run(ctx context.Context, q *Queue) error
}

// SinkNeeds holds a sink's requirements.
type SinkNeeds struct {
	// Format is the only format that the sink accepts, at any Rate. A zero Pixel means any format.
	Format Format
	// Holds is the maximum number of frames that the sink holds at a time, not counting those in its queue; 0 means 1.
	Holds int
	// OnDevice is true if the CPU never reads the frames' bytes. Only such a sink may be given memory that the CPU must
	// not read.
	OnDevice bool
	// UseSlot, if not nil, is called once for each slot before a frame arrives in it, with the index that Frame.Slot
	// will return, so that a device can pin the memory. Such a sink must be attached to a stage, because a source's
	// slots belong to the source.
	UseSlot func(index int, s Slot) error
}
