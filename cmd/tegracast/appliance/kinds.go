// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"log/slog"
	"reflect"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/lines"
	"github.com/tegracast/tegracast/cmd/tegracast/streams"
	"github.com/tegracast/tegracast/cmd/tegracast/telemetry"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/group"
	"github.com/tegracast/tegracast/pipeline/kernel"
	"github.com/tegracast/tegracast/pipeline/record"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// sources, stages and sinks hold the functions that open sources, stages and outputs, by the type of their kind in the
// configuration. The file of each kind adds its function.
var (
	sources = map[reflect.Type]func(*sourceOpener, *config.Source) (source, error){}
	stages  = map[reflect.Type]func(*stageOpener, *flow, *config.Stage) (stage, error){}
	sinks   = map[reflect.Type]func(*sinkOpener, *flow, *output, *config.Output, pipeline.Format) (pipeline.Sink, error){}
)

// A sourceOpener opens sources.
type sourceOpener struct {
	memory   *memory
	cards    *cards
	storage  *storage
	lines    *lines.Lines
	recorder *pipeline.Recorder
	groups   *group.Set
	log      *slog.Logger
}

// A stageOpener opens stages.
type stageOpener struct {
	memory     *memory
	quarantine *kernel.Quarantine
	order      *kernel.Order
	processors int // number of threads that compute
	log        *slog.Logger
}

// A sinkOpener opens the sinks of outputs, and holds what those of a kind share.
type sinkOpener struct {
	memory     *memory
	cards      *cards
	storage    *storage
	threads    *send.Threads // of the RTP streams
	streams    *streams.Set
	ucx        ucxOutputs
	shares     sharedOutputs
	recordings record.Recordings
	bus        *telemetry.Bus
	text       func() []byte // text of the configuration, for recordings
	log        *slog.Logger
}

func addSource[K config.SourceKind](open func(*sourceOpener, *config.Source, K) (source, error)) {
	sources[reflect.TypeFor[K]()] = func(op *sourceOpener, c *config.Source) (source, error) { return open(op, c, c.Kind.(K)) }
}

func addStage[K config.StageKind](open func(*stageOpener, *flow, *config.Stage, K) (stage, error)) {
	stages[reflect.TypeFor[K]()] = func(op *stageOpener, f *flow, c *config.Stage) (stage, error) { return open(op, f, c, c.Kind.(K)) }
}

// addSink adds the function that opens a kind of output. The function receives the format that the output sends.
func addSink[K config.OutputKind](open func(*sinkOpener, *flow, *output, *config.Output, K, pipeline.Format) (pipeline.Sink, error)) {
	sinks[reflect.TypeFor[K]()] = func(op *sinkOpener, f *flow, o *output, c *config.Output, own pipeline.Format) (pipeline.Sink, error) {
		return open(op, f, o, c, c.Kind.(K), own)
	}
}

// newGraph returns a graph for a source.
func (op *sourceOpener) newGraph(c *config.Source) *pipeline.Graph {
	return pipeline.NewGraph(pipeline.GraphConfig{
		Allocator: op.memory.slots(stageFlags(c)), Recorder: op.recorder, Member: op.groups.Seat(c.Name), Logger: op.log,
	})
}

// open opens a source of any kind.
func (op *sourceOpener) open(c *config.Source) (source, error) {
	return sources[reflect.TypeOf(c.Kind)](op, c)
}

// open opens a stage of any kind.
func (op *stageOpener) open(f *flow, c *config.Stage) (stage, error) {
	return stages[reflect.TypeOf(c.Kind)](op, f, c)
}

// open opens an output of any kind. own is the format that it sends.
func (op *sinkOpener) open(f *flow, o *output, c *config.Output, own pipeline.Format) (pipeline.Sink, error) {
	return sinks[reflect.TypeOf(c.Kind)](op, f, o, c, own)
}
