// SPDX-License-Identifier: Apache-2.0

// Package pipeline carries frames from a source through stages to outputs. It defines formats, frames (leases on pool
// slots), bounded queues with a drop policy, exact frame accounting, and latency statistics per stage.
//
// It imports no hardware packages. A source leases a slot and emits it as a frame; the graph hands the frame to stages
// and outputs; the slot is free again when the last of them has released it. The graph copies no pixels and allocates
// nothing per frame; a stage or a sink may (docs/architecture.md, "Path of a frame").
//
// The parts of a flow implement Source, Stage and Sink, and a Graph connects them. The packages below this one contain
// stages and sinks; package capture contains the sources.
package pipeline
