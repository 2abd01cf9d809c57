package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/kernel"
)

// quarantineFolder is where kernels that have broken the GPU are kept: the service's state, or the user's cache.
func quarantineFolder() string {
	if dir := stateDir(); dir != "" {
		return filepath.Join(dir, "quarantine")
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "tegracast", "quarantine")
}

// namedKernel is a kernel that was opened.
type namedKernel struct {
	name string
	*kernel.Stage
}

// addKernels opens the kernels of the flow, in their order.
func (f *flow) addKernels(a *appliance, d *document) error {
	for i := range d.Kernels {
		if d.sourceOf(d.Kernels[i].Name) != f.name {
			continue
		}
		if err := f.addKernel(a, d, i); err != nil {
			return err
		}
	}
	return nil
}

func (f *flow) addKernel(a *appliance, d *document, i int) error {
	c, path := &d.Kernels[i], fmt.Sprintf("$.kernels[%d]", i)
	gpu, ok := a.memory.(*cudahost.CUDA)
	if !ok {
		return usageError{d.errorAt(path, "a kernel works on the GPU and needs frame memory of CUDA, this is %s: see memory, and tegracast doctor", a.memory.Backend())}
	}
	stage, err := kernel.New(gpu, d.kernelConfig(c), kernel.Options{Cache: kernelCache(), Quarantine: a.quarantine, Order: a.order, Logger: a.env.log})
	switch {
	case errors.Is(err, cudahost.ErrCompile) || errors.Is(err, kernel.ErrConfig):
		return usageError{d.errorAt(path+".file", "%v", err)}
	case err != nil:
		return err
	}
	f.stages = append(f.stages, stage.Close)
	a.mu.Lock()
	f.kernels = append(f.kernels, namedKernel{c.Name, stage})
	a.mu.Unlock()
	if err := f.graph.AddStage(c.Name, stage, c.From, stageQueue); err != nil {
		return usageError{d.errorAt(path, "%v", strings.ReplaceAll(err.Error(), "\n", "; "))}
	}
	return nil
}

// leftOut are the kernels in quarantine.
func (a *appliance) leftOut() (names []string) {
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

// cause is err, with the kernel that has cost the process its GPU in front, whoever has met the fault first. All kernels must have
// been closed, or never will be.
func (a *appliance) cause(err error) error {
	var named *kernel.FaultError
	if f := a.order.Fault(); f != nil && pipeline.DeviceLost(err) && !errors.As(err, &named) {
		return errors.Join(f, err)
	}
	return err
}

// lostTime is how long closing may take when the GPU is lost.
const lostTime = 3 * time.Second

// end closes everything after err. When the GPU is lost the driver fails, or waits for ever for a kernel that hangs: then lines
// are put back, and what is not closed in time is left to the end of the process.
func (a *appliance) end(err error) error {
	if !pipeline.DeviceLost(err) {
		return a.Close()
	}
	lines := a.pins.drop(nil)
	closed := make(chan error, 1)
	go func() { closed <- a.Close() }()
	select {
	case <-closed: // err says why
	case <-time.After(lostTime):
		a.env.log.Warn("the GPU does not answer: the rest is left to the end of the process")
	}
	return lines
}
