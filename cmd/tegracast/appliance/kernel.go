// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"errors"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline/kernel"
)

func init() { addStage((*stageOpener).openKernel) }

// openKernel compiles and opens a kernel.
func (op *stageOpener) openKernel(f *flow, c *config.Stage, k *config.Kernel) (stage, error) {
	gpu, ok := op.memory.allocator.(*cudahost.CUDA)
	if !ok {
		return nil, c.At.Errorf("a kernel works on the GPU and needs frame memory of CUDA, this is %s: see memory, and tegracast doctor",
			op.memory.allocator.Backend())
	}
	s, err := kernel.New(gpu, k.Config(), kernel.Options{Cache: kernelCache(), Quarantine: op.quarantine, Order: op.order, Logger: op.log})
	switch {
	case errors.Is(err, cudahost.ErrCompile) || errors.Is(err, kernel.ErrConfig):
		return nil, c.OpenAt.Errorf("%w", err)
	case err != nil:
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kernels = append(f.kernels, namedKernel{c.Name, s})
	return s, nil
}
