// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"github.com/tegracast/tegracast/pipeline"
)

// inFlight is the maximum number of frames that are processed at a time: one being copied in, one in the kernel, one
// being copied out.
const inFlight = 3

// A device compiles and runs kernels: the GPU, or a stand-in in tests.
type device interface {
	build(s *source) (program, error)
	close() error // no work may be pending
}

// loaded is a program with the key of its source.
type loaded struct {
	program
	key string
}

// A program is a kernel on the device.
type program interface {
	// plan prepares for frames of this format and zeroes the state. No work may be pending.
	plan(in pipeline.Format) error
	// run enqueues a frame's work as job number job, from 0 to inFlight-1, and returns a fence that opens at its end.
	// With an error, the fence is that of the work already enqueued, or nil if nothing is being written any more. out
	// is nil if the kernel finds results.
	run(job int, in, out *pipeline.Frame) (pipeline.Fence, error)
	// working reports whether a job's kernel has begun and not ended. It may be called even if the device is lost.
	working(job int) bool
	// results returns the results of a job. They are valid until the job is run again.
	results(job int) []byte
	close() error // no work may be pending
}
