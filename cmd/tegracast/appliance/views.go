// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tegracast/tegracast/cmd/tegracast/egress"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/preview"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/web"
)

const (
	viewRate    = 15 // pictures a second
	viewQuality = 80 // of the JPEG files
)

// look opens a view of an output: while somebody looks, the stage that the output reads from makes one more small picture of each frame.
func (a *Appliance) look(name string) (web.View, error) {
	a.changing.RLock()
	defer a.changing.RUnlock()
	w, err := a.views.Look(name, func() (preview.Source, error) { return a.newView(name) })
	if err != nil {
		return nil, err
	}
	return w, nil
}

// newView attaches one more output beside the one of that name.
func (a *Appliance) newView(name string) (preview.Source, error) {
	f, o := a.output(name)
	switch {
	case o == nil:
		return preview.Source{}, web.ErrNoOutput
	case o.view.Pixel == 0:
		return preview.Source{}, errors.New("only outputs behind an isp can be looked at")
	}
	encoder, err := egress.NewJPEG(a.memory, viewQuality, a.env.Log.With("output", name))
	if err != nil {
		return preview.Source{}, err
	}
	sink := preview.New(o.view, encoder)
	attached, err := f.graph.Attach(pipeline.OutputConfig{
		Name: name + " view", Sink: sink, From: o.from, Format: o.view, Rate: pipeline.Rate{Num: viewRate, Den: 1}, Depth: 1,
	})
	if err != nil {
		return preview.Source{}, errors.Join(fmt.Errorf("%w", oneLine{err}), encoder.Close())
	}
	return preview.Source{Sink: sink, Of: f, Stop: func() {
		ctx, cancel := context.WithTimeout(context.Background(), detachTime)
		defer cancel()
		attached.Detach(ctx)
		if err := encoder.Close(); err != nil {
			a.env.Log.Warn("a view was closed with errors", "output", name, "error", err)
		}
	}}, nil
}

// describe is the SDP of an RTP stream that goes somewhere.
func (a *Appliance) describe(name string) ([]byte, error) {
	all := a.streams()
	if i := slices.IndexFunc(all, func(s *stream) bool { return s.name == name && len(s.config.Destinations) > 0 }); i >= 0 {
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
			list = append(list, a.about(f, o))
		}
	}
	for _, o := range a.off {
		list = append(list, o)
	}
	for _, w := range a.waiting {
		list = append(list, w.about)
	}
	slices.SortFunc(list, func(x, y web.Output) int {
		return cmp.Compare(slices.Index(a.names, x.Name), slices.Index(a.names, y.Name))
	})
	return list
}

// about says what can be done with an output.
func (a *Appliance) about(f *flow, o *output) web.Output {
	x := web.Output{
		Name: o.name, Picture: o.view.Pixel != 0, Samples: hasSamples(f), Record: o.records,
		Trigger: a.recordings.Triggered(o.name), OutputStatus: o.attached.Status(),
	}
	if o.stream != nil {
		x.RTSP, x.Readers, x.WHEP = a.egress.URL(o.name), a.egress.Readers(o.name), o.stream.sink.Payload() == rtp.H264
		x.SDP, x.Sends, x.To = len(o.stream.config.Destinations) > 0, payloadNames[o.stream.config.Payload.V], o.stream.config.Destinations
		if p := o.stream.config.Publish; p != nil {
			x.To = append(slices.Clone(x.To), p.URL)
		}
		x.To = append(slices.Clone(x.To), a.egress.Guests(o.name)...)
	}
	x.Sends = cmp.Or(x.Sends, map[bool]string{true: "a recording", false: "frames"}[o.records])
	return x
}
