// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/group"
)

// flows holds the open flows. All methods may be called concurrently.
type flows struct {
	mu   sync.Mutex
	list []*flow // in the order in which they were opened
}

// all returns a copy of the list of flows.
func (fs *flows) all() []*flow {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return slices.Clone(fs.list)
}

// read yields each flow with the flow's lock held, so that nobody changes its parts meanwhile.
func (fs *flows) read() iter.Seq[*flow] {
	return func(yield func(*flow) bool) {
		for _, f := range fs.all() {
			f.mu.Lock()
			more := yield(f)
			f.mu.Unlock()
			if !more {
				return
			}
		}
	}
}

func (fs *flows) add(f *flow) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.list = append(fs.list, f)
}

func (fs *flows) remove(f *flow) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.list = slices.DeleteFunc(fs.list, func(x *flow) bool { return x == f })
}

// find returns the flow of a source, or nil.
func (fs *flows) find(source string) *flow {
	all := fs.all()
	if i := slices.IndexFunc(all, func(f *flow) bool { return f.name == source }); i >= 0 {
		return all[i]
	}
	return nil
}

// output returns the flow and the output of that name, or nil for both if there is none.
func (fs *flows) output(name string) (*flow, *output) {
	for f := range fs.read() {
		if i := slices.IndexFunc(f.outputs, func(o *output) bool { return o.name == name }); i >= 0 {
			return f, f.outputs[i]
		}
	}
	return nil, nil
}

// stats returns the statistics of all flows.
func (fs *flows) stats() (all pipeline.Stats) {
	for _, f := range fs.all() {
		st := f.graph.Stats()
		all.Sources = append(all.Sources, st.Sources...)
		all.Stages = append(all.Stages, st.Stages...)
		all.Outputs = append(all.Outputs, st.Outputs...)
	}
	return all
}

// started waits until every flow has armed its outputs. It returns false if ctx ends first.
func (fs *flows) started(ctx context.Context) bool {
	for _, f := range fs.all() {
		select {
		case <-f.graph.Started():
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// allEnded reports whether every flow has ended.
func (fs *flows) allEnded() bool {
	return !slices.ContainsFunc(fs.all(), func(f *flow) bool { return !f.ended() })
}

// unended returns the sources and outputs that still run, as "source NAME" and "output NAME".
func (fs *flows) unended() (list []string) {
	for f := range fs.read() {
		if f.done == nil || f.ended() {
			continue
		}
		list = append(list, "source "+f.name)
		for _, o := range f.outputs {
			if o.attached.Status().State != pipeline.Ended {
				list = append(list, "output "+o.name)
			}
		}
	}
	return list
}

// cameras returns the states of the sources that report one.
func (fs *flows) cameras() (list []capture.State) {
	for f := range fs.read() {
		if c, ok := f.source.(interface{ State() capture.State }); ok {
			list = append(list, c.State())
		}
	}
	return list
}

// loops returns the control loops of all flows.
func (fs *flows) loops() (list []*controlLoop) {
	for f := range fs.read() {
		list = append(list, f.loops...)
	}
	return list
}

// panels returns the control panels of all sources.
func (fs *flows) panels() (list []*controlPanel) {
	for f := range fs.read() {
		if f.panel != nil {
			list = append(list, f.panel)
		}
	}
	return list
}

// trigger starts an exposure of a source now, unless it is later than latest when the flow's lock is free.
func (fs *flows) trigger(source string, latest time.Time) error {
	f := fs.find(source)
	if f == nil {
		return errNoSource
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Now().After(latest) {
		return group.ErrLate
	}
	if c, ok := f.source.(interface{ Trigger() error }); ok {
		return c.Trigger()
	}
	return errNoSource
}

// errNoSource is returned for a source that is not open, or cannot be triggered.
var errNoSource = errors.New("no such source")

// streams returns the open RTP streams.
func (fs *flows) streams() (list []*stream) {
	for f := range fs.read() {
		for _, o := range f.outputs {
			if o.stream != nil {
				list = append(list, o.stream)
			}
		}
	}
	return list
}

// externals returns the open external stages.
func (fs *flows) externals() (list []namedExternal) {
	for f := range fs.read() {
		list = append(list, f.externals...)
	}
	return list
}

// models returns the open stages that run models.
func (fs *flows) models() (list []namedModel) {
	for f := range fs.read() {
		list = append(list, f.models...)
	}
	return list
}

// quarantined returns the names of the kernels in quarantine.
func (fs *flows) quarantined() (names []string) {
	for f := range fs.read() {
		for _, k := range f.kernels {
			if k.Quarantined() != nil {
				names = append(names, k.name)
			}
		}
	}
	return names
}
