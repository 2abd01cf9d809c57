// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"cmp"
	"slices"

	"github.com/tegracast/tegracast/cmd/tegracast/streams"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record"
	"github.com/tegracast/tegracast/pipeline/rtp"
)

// reports describes the outputs, open or not.
type reports struct {
	flows      *flows
	closed     *closedOutputs
	streams    *streams.Set
	recordings *record.Recordings
}

// stats returns the statistics of all flows, and of the outputs that wait.
func (r *reports) stats() pipeline.Stats {
	all := r.flows.stats()
	all.Outputs = append(all.Outputs, r.closed.stats()...)
	return all
}

// outputs returns the outputs with the operations that each allows.
func (r *reports) outputs() []outputReport {
	var list []outputReport
	for f := range r.flows.read() {
		for _, o := range f.outputs {
			list = append(list, r.output(f, o))
		}
	}
	list = r.closed.addTo(list)
	for i := range list {
		list[i].Files = r.recordings.HasFiles(list[i].Name)
	}
	return list
}

// output describes an open output.
func (r *reports) output(f *flow, o *output) outputReport {
	x := outputReport{
		Name: o.name, From: o.from, Picture: o.view.Pixel != 0, Samples: f.hasSamples(), Record: o.files != nil,
		Trigger: r.recordings.Triggered(o.name), OutputStatus: o.attached.Status(),
	}
	if o.stream != nil {
		x.RTSP, x.WHEP = r.streams.URL(o.name), o.stream.sink.Payload() == rtp.H264
		x.SDP, x.Sends, x.To = len(o.stream.config.Destinations) > 0, payloadNames[o.stream.config.Payload.V], o.stream.config.Destinations
		published := ""
		if p := o.stream.config.Publish; p != nil {
			published = p.URL
			x.To = append(slices.Clone(x.To), published)
		}
		x.Readers, x.Troubles = r.streams.Report(o.name, published)
		x.Added = r.streams.Guests(o.name)
		x.To = append(slices.Clone(x.To), x.Added...)
	}
	x.Recording = r.recordings.State(o.name)
	x.Sends = cmp.Or(x.Sends, o.sends, map[bool]string{true: "a recording", false: "frames"}[o.files != nil])
	return x
}
