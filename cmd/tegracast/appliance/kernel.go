// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"errors"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline/kernel"
)

// namedKernel is a kernel that was opened.
type namedKernel struct {
	name string
	*kernel.Stage
}

func init() { addStage((*Appliance).openKernel) }

// openKernel compiles and opens a kernel.
func (a *Appliance) openKernel(f *flow, c *config.Stage, k *config.Kernel) (stage, error) {
	gpu, ok := a.memory.(*cudahost.CUDA)
	if !ok {
		return nil, c.At.Errorf("a kernel works on the GPU and needs frame memory of CUDA, this is %s: see memory, and tegracast doctor", a.memory.Backend())
	}
	s, err := kernel.New(gpu, k.Config(), kernel.Options{Cache: kernelCache(), Quarantine: a.quarantine, Order: a.order, Logger: a.env.Log})
	switch {
	case errors.Is(err, cudahost.ErrCompile) || errors.Is(err, kernel.ErrConfig):
		return nil, c.OpenAt.Errorf("%w", err)
	case err != nil:
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	f.kernels = append(f.kernels, namedKernel{c.Name, s})
	return s, nil
}

// leftOut are the kernels in quarantine.
func (a *Appliance) leftOut() (names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.flows {
		for _, k := range f.kernels {
			if k.Quarantined() != nil {
				names = append(names, k.name)
			}
		}
	}
	return names
}
