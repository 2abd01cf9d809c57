// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"github.com/tegracast/tegracast/pipeline"
)

// inFlight is how many frames may be in work: one on its way in, one in the kernel, one on its way out.
const inFlight = 3

// A device compiles kernels and runs them: the GPU, or a test's stand-in.
type device interface {
	build(s *source) (program, error)
	close() error // no work may be left
}

// loaded is a program and the key of what it was made of.
type loaded struct {
	program
	key string
}

// A program is a kernel on the device.
type program interface {
	// plan prepares for frames of this format; state begins with zeros. No work may be left.
	plan(in pipeline.Format) error
	// run puts a frame's work on the device, as one of inFlight jobs, and returns the fence of its end. With an error it is
	// that of what was put there before, or nil when nothing is being written any more. out is nil for results.
	run(job int, in, out *pipeline.Frame) (pipeline.Fence, error)
	// working says whether that job's kernel has begun and has not ended, also when the device is lost.
	working(job int) bool
	// results are what the job has left, until it is run again.
	results(job int) []byte
	close() error // no work may be left
}
