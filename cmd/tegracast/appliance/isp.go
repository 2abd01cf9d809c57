// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/control"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/isp"
	"github.com/tegracast/tegracast/pipeline/isp/auto"
	"github.com/tegracast/tegracast/pipeline/isp/cuda"
)

// ispStage is an isp on either processor.
type ispStage interface {
	pipeline.Stage
	auto.Balancer
	Close() error
}

func init() { addStage((*Appliance).openISP) }

// openISP opens an isp, with the loop that it is the eye of.
func (a *Appliance) openISP(f *flow, c *config.Stage, k *config.ISP) (stage, error) {
	cfg := k.Config()
	loop, err := control.NewLoop(f.source, k, &cfg, a.env.Log)
	if err != nil {
		return nil, fmt.Errorf("isp %s: %w", c.Name, err)
	}
	s, err := a.newISP(k, cfg, func(err error) { f.cancel(err) })
	if err != nil {
		return nil, fmt.Errorf("isp %s: %w", c.Name, err)
	}
	f.panel.Add(k.Name, s, cfg.Gains, loop)
	if loop != nil {
		loop.Stage = s
		f.controllers = append(f.controllers, loop)
	}
	return s, nil
}

// newISP opens an isp: on the GPU when frame memory is CUDA's, unless the configuration says otherwise; else on the CPU.
// fault hears of a GPU that cannot go on.
func (a *Appliance) newISP(k *config.ISP, cfg isp.Config, fault func(error)) (ispStage, error) {
	cfg.Workers = cmp.Or(cfg.Workers, min(a.env.Processors, isp.MaxWorkers))
	gpu, ok := a.memory.(*cudahost.CUDA)
	if k.Device == "cuda" && !ok {
		return nil, fmt.Errorf("device cuda needs frame memory of CUDA, this is %s: see memory, and tegracast doctor", a.memory.Backend())
	}
	if k.Device == "cpu" || !ok {
		return isp.New(cfg)
	}
	s, err := cuda.New(gpu, cfg, cuda.Options{Cache: kernelCache(), Fault: fault})
	if err == nil {
		a.env.Log.Info("isp runs on the GPU", "isp", k.Name, "device", gpu.Device.String())
		return s, nil
	}
	if k.Device == "cuda" || !errors.Is(err, cudahost.ErrNoCUDA) {
		return nil, err
	}
	a.env.Log.Warn("isp runs on the CPU", "isp", k.Name, "reason", err)
	return isp.New(cfg)
}
