// SPDX-License-Identifier: Apache-2.0

package pipeline

import "context"

// A Source emits frames of one format.
type Source interface {
	Format() Format
	// Run emits frames until ctx ends or the source has no more; then it returns nil. emit takes over the lease. A frame may be
	// emitted while it fills (Frame.Fill): the source keeps a lease of its own until Finish, and finishes all before it returns.
	Run(ctx context.Context, emit func(*Frame)) error
	// Status may be called at any time, from any goroutine, and by a source that does not run. It is not called per frame.
	Status() SourceStatus
}

// SourceStatus is what a source knows of itself.
type SourceStatus struct {
	// Slots is how many frames the source has memory for, where hardware limits that: the graph refuses an output that could
	// hold so many of them that the source would starve. 0: the graph does not check.
	Slots int
	// Idle says that the source has nothing to emit and that this is no fault: an untriggered camera. A source that is not
	// idle and emits nothing for longer than its frame period stalls.
	Idle bool
	// Waits says that each frame waits until all consumers have room for it, those behind stages too: none is lost for want of
	// room. A camera cannot wait. The graph asks once, before Run.
	Waits bool
	// Counters are running totals of the source's own, by name: why frames were lost before they could be emitted, and
	// what happened to the source. nil: it has none. The map belongs to the caller.
	Counters map[string]uint64
}

// A Stage makes frames out of a frame.
type Stage interface {
	// Needs says what the stage needs of the graph. in is the format that the source delivers; behind another stage it is
	// the format that that one reads. It is called once, before Plan.
	Needs(in Format) (StageNeeds, error)
	// Plan says whether the stage can make all the wanted formats from in, and prepares it. It may be called
	// again, never at the same time as Process.
	Plan(in Format, want []Format) error
	// Process reads in and writes outs, which stand in the order of Plan's want. An element is nil where nobody
	// wants that format of this frame; the others have Sequence, Times, Flags and Results of in already. Process sets
	// Times.Processed and appends to Results. A stage that works asynchronously sets the outs' Ready.
	Process(ctx context.Context, in *Frame, outs []*Frame) error
}

// StageNeeds is what a stage needs of the graph.
type StageNeeds struct {
	// From is the format that the stage wants another stage to make for it. A zero Pixel: it reads from sources only, as they
	// deliver. Rate is the graph's.
	From Format
	// Holds is how many frames the stage holds at a time, besides those that wait in its queue; 0: 1.
	Holds int
	// OnDevice says that the CPU never reads the frames. Only such a stage may read memory that the CPU must not read.
	OnDevice bool
	// Slices says that Process reads a frame that fills behind its Lines, and calls Arrive on outs as it makes lines. The
	// graph calls Fill and Finish on outs. Another stage gets such a frame when it is complete.
	Slices bool
}

// A Sink consumes frames.
type Sink interface {
	// Needs says what the sink needs of the graph. It is called once, when the sink is attached.
	Needs() SinkNeeds
	// Run takes frames from q and gives each back by q.Done or q.Fail, until q.Next returns an error. It may return that
	// error as it is, or joined with its own: the graph knows the normal end. Any other error ends the output. When ctx ends it
	// returns within seconds, whatever it waits for: a reload and the end of the service wait for it.
	Run(ctx context.Context, q *Queue) error
}

// SinkNeeds is what a sink needs of the graph.
type SinkNeeds struct {
	// Format is the only one that the sink takes, at any Rate. A zero Pixel: it takes any.
	Format Format
	// Holds is how many frames the sink holds at a time, besides those that wait in its queue; 0: 1.
	Holds int
	// OnDevice says that the CPU never reads the frames' bytes. Only such a sink may read memory that the CPU must not read.
	OnDevice bool
	// UseSlot, if it is not nil, is called once for each slot before a frame comes in it, with the index that Frame.Slot will
	// give: a device can pin the memory. Such a sink is attached to a stage; a source's slots belong to the source.
	UseSlot func(index int, s Slot) error
}
