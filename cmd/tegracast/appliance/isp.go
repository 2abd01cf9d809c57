// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/convert"
	"github.com/tegracast/tegracast/pipeline/isp"
	"github.com/tegracast/tegracast/pipeline/isp/auto"
	"github.com/tegracast/tegracast/pipeline/isp/cuda"
)

// ispStage is an isp on the CPU or the GPU.
type ispStage interface {
	pipeline.Stage
	auto.Balancer
	Close() error
}

func init() { addStage((*stageOpener).openISP) }

// openISP opens an isp, with the control loop that uses its statistics, if one is configured.
func (op *stageOpener) openISP(f *flow, c *config.Stage, k *config.ISP) (stage, error) {
	if k.Converts(f.source.Format()) {
		return convert.New(convert.Config{Workers: cmp.Or(k.Workers, op.processors), Logger: op.log.With("isp", k.Name)}), nil
	}
	cfg := k.Config()
	loop, err := newControlLoop(f.source, k, &cfg, op.log)
	if err != nil {
		return nil, fmt.Errorf("isp %s: %w", c.Name, err)
	}
	s, err := op.newISP(k, cfg, func(err error) { f.cancel(err) })
	if err != nil {
		return nil, fmt.Errorf("isp %s: %w", c.Name, err)
	}
	f.panel.Add(k.Name, s, &cfg, loop)
	if loop != nil {
		loop.Stage = s
		f.mu.Lock()
		f.loops = append(f.loops, loop)
		f.mu.Unlock()
	}
	return s, nil
}

// newISP opens an isp on the CPU if the configuration requires that, and otherwise on the GPU. If frame memory is not
// CUDA's, or opening it on the GPU fails with cudahost.ErrNoCUDA, and the configuration does not require the GPU,
// newISP opens the isp on the CPU. The isp calls fault if the GPU is lost.
func (op *stageOpener) newISP(k *config.ISP, cfg isp.Config, fault func(error)) (ispStage, error) {
	cfg.Workers = cmp.Or(cfg.Workers, min(op.processors, isp.MaxWorkers))
	gpu, ok := op.memory.allocator.(*cudahost.CUDA)
	if k.Device == "cuda" && !ok {
		return nil, fmt.Errorf("device cuda needs frame memory of CUDA, this is %s: see memory, and tegracast doctor", op.memory.allocator.Backend())
	}
	if k.Device == "cpu" || !ok {
		return isp.New(cfg)
	}
	s, err := cuda.New(gpu, cfg, cuda.Options{Cache: kernelCache(), Fault: fault})
	if err == nil {
		op.log.Info("isp runs on the GPU", "isp", k.Name, "device", gpu.Device.String())
		return s, nil
	}
	if k.Device == "cuda" || !errors.Is(err, cudahost.ErrNoCUDA) {
		return nil, err
	}
	op.log.Warn("isp runs on the CPU", "isp", k.Name, "reason", err)
	return isp.New(cfg)
}
