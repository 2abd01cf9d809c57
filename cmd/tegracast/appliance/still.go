// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/tegracast/tegracast/cmd/tegracast/preview"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/convert"
	"github.com/tegracast/tegracast/pipeline/record"
	"github.com/tegracast/tegracast/pipeline/record/export"
)

// A still is one frame as a file.
type still struct {
	Sequence uint64 // of the frame
	File     []byte
}

// takeStill returns the next frame of an output as a file of a kind: png has the picture, dng the samples from which it
// is made.
func (p *pictures) takeStill(ctx context.Context, name, kind string) (still, error) {
	frame, camera, shot, err := p.copyFrame(ctx, name, kind == "dng")
	if err != nil {
		return still{}, err
	}
	if kind == "png" {
		if frame, err = inRGB(frame); err != nil {
			return still{}, err
		}
	}
	var file bytes.Buffer
	if err := export.WriteStill(&file, kind, frame, camera, shot); err != nil {
		return still{}, err
	}
	return still{Sequence: frame.Sequence, File: file.Bytes()}, nil
}

// inRGB returns a picture as RGB24, or the frame itself if it has no pixels that package convert knows.
func inRGB(f *pipeline.Frame) (*pipeline.Frame, error) {
	if f.Format.Pixel == pipeline.RGB24 || convert.CheckInput(f.Format) != nil {
		return f, nil
	}
	format, err := pipeline.NewFormat(pipeline.RGB24, f.Format.Width, f.Format.Height, f.Format.Rate)
	if err != nil {
		return nil, err
	}
	rgb := &pipeline.Frame{Format: format, Bytes: make([]byte, format.Size()), Sequence: f.Sequence, Times: f.Times}
	s := convert.New(convert.Config{})
	err = s.Plan(f.Format, []pipeline.Format{format})
	if err == nil {
		err = s.Process(context.Background(), f, []*pipeline.Frame{rgb})
	}
	return rgb, errors.Join(err, s.Close())
}

// copyFrame waits for the next frame and returns a copy of it, its source's name, and the settings with which it was
// taken: the source's own frame if samples is set, else the picture that the output's stage makes from it. A reload waits
// meanwhile.
func (p *pictures) copyFrame(ctx context.Context, name string, samples bool) (frame *pipeline.Frame, source string, shot record.Settings, err error) {
	p.changing.RLock()
	defer p.changing.RUnlock()
	f, o := p.flows.output(name)
	switch {
	case o == nil:
		return nil, "", shot, errNoOutput
	case !samples && o.view.Pixel == 0:
		return nil, "", shot, errors.New("only outputs behind an isp have pictures")
	case samples && !f.hasSamples():
		return nil, "", shot, fmt.Errorf("source %s has pictures, and no sensor's samples", f.name)
	}
	want := pipeline.OutputConfig{Name: name + " still", Sink: preview.NewStill(), From: f.name, Depth: 1}
	if !samples {
		in := f.source.Format()
		want.From = o.from
		width, height := o.config.Size(in)
		if want.Format, err = pipeline.NewFormat(pipeline.RGB24, width, height, in.Rate); err != nil {
			return nil, "", shot, err
		}
	}
	attached, err := f.graph.Attach(want)
	if !samples && errors.Is(err, pipeline.ErrNegotiation) { // the stage makes one format only
		want.Format = pipeline.Format{}
		attached, err = f.graph.Attach(want)
	}
	if err != nil {
		return nil, "", shot, oneLine{err}
	}
	frame, err = want.Sink.(*preview.Still).Frame(ctx)
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), detachTime)
	defer cancel()
	attached.Detach(bounded)
	shot, _ = f.panel.Shot()
	return frame, f.name, shot, err
}
