// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"unsafe"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/isp"
)

// copyIn brings the sensor's frame to the device, on a stream of its own, and has the kernels wait for it.
func (s *Stage) copyIn(j *job, in *pipeline.Frame) error {
	r := s.plan.recipe
	l := cudahost.Lines{Width: r.In.Pixel.LineBytes(r.In.Width), Height: r.In.Height, Stride: r.In.Stride}
	if err := s.in.CopyIn(j.in, address(in), l); err != nil {
		return err
	}
	if err := s.in.Mark(j.copied); err != nil {
		return err
	}
	return s.work.After(j.copied)
}

// copyOut brings the pictures to their frames when they are made. Nothing but their bytes is written.
func (s *Stage) copyOut(j *job, outs []*pipeline.Frame) error {
	if err := s.work.Mark(j.made); err != nil {
		return err
	}
	if err := s.out.After(j.made); err != nil {
		return err
	}
	for i, out := range outs {
		if out == nil {
			continue
		}
		for _, p := range s.plan.planes[i] {
			if err := s.out.CopyOut(address(out)+p.offset, j.outs[i]+p.offset, p.lines); err != nil {
				return err
			}
		}
	}
	return nil
}

// address is the CPU's of a frame.
func address(f *pipeline.Frame) uintptr { return uintptr(unsafe.Pointer(&f.Bytes[0])) }

// A plane is a part of a picture whose lines are equally far apart.
type plane struct {
	offset uintptr
	lines  cudahost.Lines
}

// planes are where a picture's bytes are.
func planes(o *isp.RecipeOutput) []plane {
	f := o.Format
	if f.PacketPitch > 0 {
		packets := o.LineBytes / o.Payload * f.Height
		return []plane{{uintptr(f.HeaderGap), cudahost.Lines{Width: o.Payload, Height: packets, Stride: f.PacketPitch}}}
	}
	list := []plane{{0, cudahost.Lines{Width: o.LineBytes, Height: f.Height, Stride: f.Stride}}}
	chroma := uintptr(f.Stride * f.Height)
	switch f.Pixel {
	case pipeline.NV12:
		list = append(list, plane{chroma, cudahost.Lines{Width: f.Width, Height: f.Height / 2, Stride: f.Stride}})
	case pipeline.I420: // Cr's lines follow Cb's
		list = append(list, plane{chroma, cudahost.Lines{Width: f.Width / 2, Height: f.Height, Stride: f.Stride / 2}})
	}
	return list
}
