// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"unsafe"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/isp"
)

// copyIn copies the given number of lines from the top of the sensor's frame, except those already copied, to the
// device, on a separate stream, and makes the kernels wait for the copy.
func (s *Stage) copyIn(j *job, in *pipeline.Frame, lines int) error {
	f, from := s.plan.recipe.In, j.progress.input
	j.progress.input = lines
	l := cudahost.Lines{Width: f.Pixel.LineBytes(f.Width), Height: lines - from, Stride: f.Stride}
	offset := uintptr(from * f.Stride)
	if err := s.in.CopyIn(j.in+offset, address(in)+offset, l); err != nil {
		return err
	}
	if err := s.in.Mark(j.inside); err != nil {
		return err
	}
	return s.work.After(j.inside)
}

// copyOut copies the finished lines of pictures to their frames. It writes nothing but their bytes.
func (s *Stage) copyOut(j *job, outs []*pipeline.Frame) error {
	if err := s.work.Mark(j.worked); err != nil {
		return err
	}
	if err := s.out.After(j.worked); err != nil {
		return err
	}
	for i, out := range outs {
		if out == nil || j.made[i] == j.copied[i] {
			continue
		}
		for _, p := range s.plan.planes[i] {
			offset, l := p.part(j.copied[i], j.made[i])
			if err := s.out.CopyOut(address(out)+offset, j.outs[i]+offset, l); err != nil {
				return err
			}
		}
		j.copied[i] = j.made[i]
	}
	return nil
}

// address returns the CPU address of a frame.
func address(f *pipeline.Frame) uintptr { return uintptr(unsafe.Pointer(&f.Bytes[0])) }

// A plane is a plane of a picture, or of a packed picture all of it.
type plane struct {
	offset uintptr
	lines  cudahost.Lines
	height int // height of the picture
}

// part returns the plane's part of the picture's lines [begin, end). Each bound must be even, or the picture's height.
func (p plane) part(begin, end int) (offset uintptr, l cudahost.Lines) {
	from, to := begin*p.lines.Height/p.height, end*p.lines.Height/p.height
	l = p.lines
	l.Height = to - from
	return p.offset + uintptr(from*l.Stride), l
}

// planes returns the planes of a picture.
func planes(o *isp.RecipeOutput) []plane {
	f := o.Format
	if f.PacketPitch > 0 {
		packets := o.LineBytes / o.Payload * f.Height
		return []plane{{uintptr(f.HeaderGap), cudahost.Lines{Width: o.Payload, Height: packets, Stride: f.PacketPitch}, f.Height}}
	}
	list := []plane{{0, cudahost.Lines{Width: o.LineBytes, Height: f.Height, Stride: f.Stride}, f.Height}}
	chroma := uintptr(f.Stride * f.Height)
	switch f.Pixel {
	case pipeline.NV12:
		list = append(list, plane{chroma, cudahost.Lines{Width: f.Width, Height: f.Height / 2, Stride: f.Stride}, f.Height})
	case pipeline.I420:
		half := cudahost.Lines{Width: f.Width / 2, Height: f.Height / 2, Stride: f.Stride / 2}
		list = append(list, plane{chroma, half, f.Height}, plane{chroma + uintptr(half.Stride*half.Height), half, f.Height})
	}
	return list
}
