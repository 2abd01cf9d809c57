// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/preview"
	"github.com/tegracast/tegracast/pipeline/record/export"
	"github.com/tegracast/tegracast/pipeline/web"
)

// still is the next frame of an output as a file: png is the picture, dng the samples that it is made of.
func (a *Appliance) still(ctx context.Context, name, kind string) (web.Still, error) {
	frame, camera, err := a.frame(ctx, name, kind == "dng")
	if err != nil {
		return web.Still{}, err
	}
	var file bytes.Buffer
	if err := export.WriteStill(&file, kind, frame, camera); err != nil {
		return web.Still{}, err
	}
	return web.Still{Sequence: frame.Sequence, File: file.Bytes()}, nil
}

// frame copies the next frame: the source's, or the picture that the output's stage makes of it. A reload waits meanwhile.
func (a *Appliance) frame(ctx context.Context, name string, samples bool) (frame *pipeline.Frame, source string, err error) {
	a.changing.RLock()
	defer a.changing.RUnlock()
	f, o := a.output(name)
	switch {
	case o == nil:
		return nil, "", web.ErrNoOutput
	case !samples && o.view.Pixel == 0:
		return nil, "", errors.New("only outputs behind an isp have pictures")
	case samples && !hasSamples(f):
		return nil, "", fmt.Errorf("source %s has pictures, and no sensor's samples", f.name)
	}
	want := pipeline.OutputConfig{Name: name + " still", Sink: preview.NewStill(), From: f.name, Depth: 1}
	if !samples {
		in := f.source.Format()
		want.From = o.from
		if want.Format, err = pipeline.NewFormat(pipeline.RGB24, in.Width, in.Height, in.Rate); err != nil {
			return nil, "", err
		}
	}
	attached, err := f.graph.Attach(want)
	if !samples && errors.Is(err, pipeline.ErrNegotiation) { // its pictures are as they are
		want.Format = pipeline.Format{}
		attached, err = f.graph.Attach(want)
	}
	if err != nil {
		return nil, "", oneLine{err}
	}
	frame, err = want.Sink.(*preview.Still).Frame(ctx)
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), detachTime)
	defer cancel()
	attached.Detach(bounded)
	return frame, f.name, err
}

// hasSamples says whether a flow's frames are a sensor's.
func hasSamples(f *flow) bool {
	_, samples := f.source.Format().Pixel.Samples()
	return samples
}
