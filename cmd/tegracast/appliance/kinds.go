// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"reflect"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/pipeline"
)

// How sources, stages and outputs are opened, by their kind in the configuration. Each kind has a file here, which adds it.
var (
	sources = map[reflect.Type]func(*Appliance, *config.Source) (source, error){}
	stages  = map[reflect.Type]func(*Appliance, *flow, *config.Stage) (stage, error){}
	sinks   = map[reflect.Type]func(*Appliance, *flow, *output, *config.Output, pipeline.Format) (pipeline.Sink, error){}
)

func addSource[K config.SourceKind](open func(*Appliance, *config.Source, K) (source, error)) {
	sources[reflect.TypeFor[K]()] = func(a *Appliance, c *config.Source) (source, error) { return open(a, c, c.Kind.(K)) }
}

func addStage[K config.StageKind](open func(*Appliance, *flow, *config.Stage, K) (stage, error)) {
	stages[reflect.TypeFor[K]()] = func(a *Appliance, f *flow, c *config.Stage) (stage, error) { return open(a, f, c, c.Kind.(K)) }
}

// addSink adds a kind of output. The format is that of what the output sends.
func addSink[K config.OutputKind](open func(*Appliance, *flow, *output, *config.Output, K, pipeline.Format) (pipeline.Sink, error)) {
	sinks[reflect.TypeFor[K]()] = func(a *Appliance, f *flow, o *output, c *config.Output, own pipeline.Format) (pipeline.Sink, error) {
		return open(a, f, o, c, c.Kind.(K), own)
	}
}

// openSource opens a source of any kind.
func (a *Appliance) openSource(c *config.Source) (source, error) {
	return sources[reflect.TypeOf(c.Kind)](a, c)
}

// openStage opens a stage of any kind.
func (a *Appliance) openStage(f *flow, c *config.Stage) (stage, error) {
	return stages[reflect.TypeOf(c.Kind)](a, f, c)
}

// openSink opens an output of any kind. own is what it sends.
func (a *Appliance) openSink(f *flow, o *output, c *config.Output, own pipeline.Format) (pipeline.Sink, error) {
	return sinks[reflect.TypeOf(c.Kind)](a, f, o, c, own)
}
