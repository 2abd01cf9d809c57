// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/preview"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/web"
)

const (
	viewRate    = 15              // pictures a second
	viewQuality = 80              // of the JPEG files
	viewIdle    = 5 * time.Second // that pictures are still made when nobody looks any more
)

// views makes pictures of the outputs that somebody looks at now. For each, the stage that the output reads from makes one
// more small picture of each frame.
type views struct {
	mu   sync.Mutex
	open map[string]*window // by output
}

// window is an output that somebody looks at, or has just looked at.
type window struct {
	flow     *flow
	sink     *preview.Sink
	attached *pipeline.Output
	encoder  *gpuJPEG // nil: the CPU encodes
	watchers int
	idle     *time.Timer
}

// watcher is somebody who looks.
type watcher struct {
	sink  *preview.Sink
	once  sync.Once
	close func()
}

// Next implements web.View.
func (w *watcher) Next(ctx context.Context, old *preview.Picture) (*preview.Picture, error) {
	return w.sink.Next(ctx, old)
}

// Close implements web.View.
func (w *watcher) Close() { w.once.Do(w.close) }

// look opens the view of an output, or joins those who look already.
func (a *Appliance) look(name string) (web.View, error) {
	a.changing.RLock()
	defer a.changing.RUnlock()
	a.views.mu.Lock()
	defer a.views.mu.Unlock()
	v := a.views.open[name]
	if v == nil {
		var err error
		if v, err = a.newView(name); err != nil {
			return nil, err
		}
		a.views.open[name] = v
	}
	v.watchers++
	if v.idle != nil {
		v.idle.Stop()
	}
	return &watcher{sink: v.sink, close: func() { a.leave(name, v) }}, nil
}

// leave ends the view some time after the last one has left.
func (a *Appliance) leave(name string, v *window) {
	a.views.mu.Lock()
	defer a.views.mu.Unlock()
	if v.watchers--; v.watchers > 0 || a.views.open[name] != v {
		return
	}
	v.idle = time.AfterFunc(viewIdle, func() {
		a.views.mu.Lock()
		defer a.views.mu.Unlock()
		if v.watchers == 0 && a.views.open[name] == v {
			a.endView(name, v)
		}
	})
}

func (a *Appliance) endView(name string, v *window) {
	delete(a.views.open, name)
	ctx, cancel := context.WithTimeout(context.Background(), detachTime)
	defer cancel()
	v.attached.Detach(ctx)
	if err := v.encoder.Close(); err != nil {
		a.env.Log.Warn("a view was closed with errors", "output", name, "error", err)
	}
}

// endViews ends the views of a flow, or only that of one of its outputs.
func (a *Appliance) endViews(f *flow, only string) {
	a.views.mu.Lock()
	defer a.views.mu.Unlock()
	for name, v := range a.views.open {
		if v.flow == f && (only == "" || only == name) {
			a.endView(name, v)
		}
	}
}

// newView attaches one more output beside the one of that name.
func (a *Appliance) newView(name string) (*window, error) {
	f, o := a.output(name)
	switch {
	case o == nil:
		return nil, web.ErrNoOutput
	case o.view.Pixel == 0:
		return nil, errors.New("only outputs behind an isp can be looked at")
	}
	encoder, err := a.newJPEG(name, viewQuality)
	if err != nil {
		return nil, err
	}
	v := &window{flow: f, encoder: encoder}
	if encoder != nil {
		v.sink = preview.New(o.view, encoder)
	} else {
		v.sink = preview.New(o.view, rtp.NewJPEGEncoder(viewQuality))
	}
	v.attached, err = f.graph.Attach(pipeline.OutputConfig{
		Name: name + " view", Sink: v.sink, From: o.from, Format: o.view, Rate: pipeline.Rate{Num: viewRate, Den: 1}, Depth: 1,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w", oneLine{err}), encoder.Close())
	}
	return v, nil
}

// output returns an output by its name, and its flow; nil when there is none.
func (a *Appliance) output(name string) (*flow, *output) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.flows {
		if i := slices.IndexFunc(f.outputs, func(o *output) bool { return o.name == name }); i >= 0 {
			return f, f.outputs[i]
		}
	}
	return nil, nil
}

// describe is the SDP of an RTP stream.
func (a *Appliance) describe(name string) ([]byte, error) {
	all := a.streams()
	if i := slices.IndexFunc(all, func(s *stream) bool { return s.name == name }); i >= 0 {
		return all[i].describe(all)
	}
	return nil, web.ErrNoOutput
}

// list says what can be done with each output.
func (a *Appliance) list() []web.Output {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []web.Output
	for _, f := range a.flows {
		for _, o := range f.outputs {
			x := web.Output{Name: o.name, Picture: o.view.Pixel != 0, Trigger: a.recordings.Triggered(o.name)}
			if o.stream != nil {
				x.SDP, x.Sends, x.To = true, payloadNames[o.stream.config.Payload.V], o.stream.config.Destinations
			}
			x.Sends = cmp.Or(x.Sends, "frames")
			list = append(list, x)
		}
	}
	return list
}
