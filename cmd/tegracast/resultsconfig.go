package main

import (
	"fmt"
	"slices"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/results"
	"github.com/tegracast/tegracast/pipeline/rtp"
)

// ResultsConfig is where results go as lines of JSON.
type ResultsConfig struct {
	UDP []string `yaml:"udp,omitempty" jsonschema_description:"Each is host:port and gets one datagram for each frame."`
	TCP string   `yaml:"tcp,omitempty" jsonschema_description:"host:port to listen on. Each connection gets every line from then on."`
}

// tellsResults says whether the output sends results instead of pixels.
func (c *OutputConfig) tellsResults() bool {
	return c.Results != nil || c.RTP != nil && c.RTP.Payload.V == rtp.Results
}

// smallest is the least that a stage can make of frames in, to carry results: a grey picture.
func smallest(in pipeline.Format) (pipeline.Format, error) {
	by := 1
	for by < 4 && in.Width%(2*by) == 0 && in.Height%(2*by) == 0 && min(in.Width, in.Height) >= 4*by {
		by *= 2
	}
	f, err := pipeline.NewFormat(pipeline.Grey, in.Width/by, in.Height/by, in.Rate)
	f.Color = pipeline.BT709Limited
	return f, err
}

// checkResults checks an output that sends no pixels.
func (d *document) checkResults(path string, o *OutputConfig, taken map[string]string) error {
	if o.Scale != "" {
		return d.errorAt(path+".scale", "results have no size: leave scale out")
	}
	if o.RTP != nil && o.RTP.Session != "" {
		i := slices.IndexFunc(d.Outputs, func(x OutputConfig) bool { return x.Name == o.RTP.Session })
		if i < 0 || d.Outputs[i].RTP == nil || d.Outputs[i].tellsResults() {
			return d.errorAt(path+".rtp.session", "%q is no output that sends pictures by RTP", o.RTP.Session)
		}
	}
	if o.Results == nil {
		return nil
	}
	if len(o.Results.UDP) == 0 && o.Results.TCP == "" {
		return d.errorAt(path+".results", "say where the results go: udp, tcp or both")
	}
	for i, dest := range o.Results.UDP {
		at := fmt.Sprintf("%s.results.udp[%d]", path, i)
		if err := results.CheckAddress(dest); err != nil {
			return d.errorAt(at, "%v", err)
		}
		if first, ok := taken[dest]; ok {
			return d.errorAt(at, "%s is the destination of %s already: give it another port", dest, first[2:])
		}
		taken[dest] = at
	}
	if o.Results.TCP != "" {
		at := path + ".results.tcp"
		if err := results.CheckAddress(o.Results.TCP); err != nil {
			return d.errorAt(at, "%v", err)
		}
		key := "tcp " + o.Results.TCP
		if first, ok := taken[key]; ok {
			return d.errorAt(at, "%s listens at %s already: give it another port", first[2:], o.Results.TCP)
		}
		taken[key] = at
	}
	return nil
}

// resultsSink opens an output of lines.
func (a *appliance) resultsSink(o *output, c *OutputConfig) (pipeline.Sink, error) {
	sink, err := results.New(results.Config{UDP: c.Results.UDP, Listen: c.Results.TCP, Logger: a.env.log.With("output", c.Name)})
	if err != nil {
		return nil, err
	}
	o.free = sink.Close
	return sink, nil
}
