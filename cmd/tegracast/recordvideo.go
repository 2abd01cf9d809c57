// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/codec"
	"github.com/tegracast/tegracast/pipeline/isp"
	"github.com/tegracast/tegracast/pipeline/record"
	"github.com/tegracast/tegracast/pipeline/record/export"
)

// videoOptions are the options of record export for mp4.
type videoOptions struct {
	config, isp string
	bitrate     int // in kbit/s; 0: the default
}

// check returns an error if the options are invalid for a format.
func (o *videoOptions) check(format string, files []string) error {
	var err error
	switch {
	case filepath.Ext(files[0]) == record.VideoExtension && *o != videoOptions{}:
		err = fmt.Errorf("--bitrate, --config and --isp are for encoding, and the pictures of %s are encoded already: leave them out", files[0])
	case format != "mp4" && *o != videoOptions{}:
		err = fmt.Errorf("--bitrate, --config and --isp are for mp4, not for %s: leave them out", format)
	case o.isp != "" && o.config == "":
		err = errors.New("--isp names an isp of a configuration: name the file with --config, too")
	case o.bitrate != 0 && (o.bitrate < codec.MinBitrate/1000 || o.bitrate > codec.MaxBitrate/1000):
		err = fmt.Errorf("--bitrate %d: must be from %d to %d kbit/s", o.bitrate, codec.MinBitrate/1000, codec.MaxBitrate/1000)
	}
	if err != nil {
		return terminal.UsageError{Err: err}
	}
	return nil
}

// settings returns those of the isp that makes pictures of samples: of the configuration, or of the default one.
func (o *videoOptions) settings() (c isp.Config, err error) {
	a, err := config.Load(o.config)
	if err != nil {
		return c, err
	}
	var found []*config.ISP
	var all []string
	for i := range a.Stages {
		if k, is := a.Stages[i].Kind.(*config.ISP); is {
			if all = append(all, k.Name); o.isp == "" || o.isp == k.Name {
				found = append(found, k)
			}
		}
	}
	switch {
	case len(all) == 0:
		err = fmt.Errorf("%s has no isp, which makes pictures of samples: name another file", o.config)
	case len(found) == 0:
		err = fmt.Errorf("%s has no isp %q: use --isp %s", o.config, o.isp, strings.Join(all, " or "))
	case len(found) > 1:
		err = fmt.Errorf("%s has several isps: add --isp %s", o.config, strings.Join(all, " or "))
	default:
		return found[0].Config(), nil
	}
	return c, terminal.UsageError{Err: err}
}

// video makes H.264 of frames on the CPU.
type video struct {
	stage   *isp.Stage      // nil: the frames are pictures
	picture *pipeline.Frame // what is encoded, unless the frames are
	encoder *codec.H264
	unit    []byte
}

// open opens a video for frames of format f: pictures, or a sensor's samples, which go through an isp.
func (o *videoOptions) open(f pipeline.Format) (export.Video, error) {
	v := &video{}
	width, height, color := f.Width, f.Height, f.Color
	if _, samples := f.Pixel.Samples(); samples {
		c, err := o.settings()
		if err != nil {
			return nil, err
		}
		if v.stage, err = isp.New(c); err != nil {
			return nil, err
		}
		width, height = c.Turn.Size(width, height)
		color = pipeline.BT709Limited
	}
	encoded, err := pipeline.NewFormat(pipeline.I420, width, height, f.Rate)
	if encoded.Color = color; err == nil && v.stage != nil {
		err = v.stage.Plan(f, []pipeline.Format{encoded})
	}
	if err == nil {
		v.encoder, err = codec.NewH264(encoded, cmp.Or(1000*o.bitrate, codec.DefaultBitrate(encoded)))
	}
	if err != nil {
		return nil, errors.Join(err, v.Close())
	}
	v.picture = &pipeline.Frame{Format: encoded, Bytes: make([]byte, encoded.Size())}
	v.unit = make([]byte, 0, 2*encoded.Size()+4096) // more than H.264 allows (A.3.1)
	return v, nil
}

// Encode implements export.Video.
func (v *video) Encode(ctx context.Context, f *pipeline.Frame, key bool) ([]byte, error) {
	v.picture.Sequence = f.Sequence
	switch {
	case f.Format.Pixel == pipeline.I420:
		return v.encoder.Encode(v.unit, f, key)
	case v.stage == nil:
		halveChroma(v.picture, f)
	default:
		if err := v.stage.Process(ctx, f, []*pipeline.Frame{v.picture}); err != nil {
			return nil, err
		}
	}
	return v.encoder.Encode(v.unit, v.picture, key)
}

// ParameterSets implements export.Video.
func (v *video) ParameterSets() (sps, pps []byte) { return v.encoder.ParameterSets() }

// Close implements export.Video.
func (v *video) Close() error {
	var errs []error
	if v.stage != nil {
		errs = append(errs, v.stage.Close())
	}
	if v.encoder != nil {
		errs = append(errs, v.encoder.Close())
	}
	return errors.Join(errs...)
}

// halveChroma makes an I420 picture of a UYVY one: the chroma of two lines becomes their mean.
func halveChroma(out, in *pipeline.Frame) {
	w, h := out.Format.Width, out.Format.Height
	luma, chroma := out.Bytes[:w*h], out.Bytes[w*h:]
	cb, cr := chroma[:w*h/4], chroma[w*h/4:]
	for y := 0; y < h; y += 2 {
		top, below := in.Bytes[y*in.Format.Stride:][:2*w], in.Bytes[(y+1)*in.Format.Stride:][:2*w]
		l0, l1 := luma[y*w:][:w], luma[(y+1)*w:][:w]
		b, r := cb[y/2*(w/2):][:w/2], cr[y/2*(w/2):][:w/2]
		for x := range b {
			t, u := top[4*x:][:4], below[4*x:][:4]
			b[x], r[x] = byte((int(t[0])+int(u[0])+1)/2), byte((int(t[2])+int(u[2])+1)/2)
			l0[2*x], l0[2*x+1], l1[2*x], l1[2*x+1] = t[1], t[3], u[1], u[3]
		}
	}
}
