// SPDX-License-Identifier: Apache-2.0

// Package pipeline is the flow of frames from a source through stages to outputs: formats, frames that are leases
// on pool slots, bounded queues with a drop policy, exact accounting and latency by stage.
//
// It imports no hardware. A source leases a slot and emits it; the graph hands it to stages and outputs; when the
// last of them has released it the slot is free again. The graph copies no pixels and allocates nothing per frame; a stage
// or a sink may (docs/architecture.md, "Path of a frame").
//
// Source, Stage and Sink are what a part of the flow implements; a Graph joins them. The packages below have the
// stages and sinks; capture has the sources.
package pipeline
