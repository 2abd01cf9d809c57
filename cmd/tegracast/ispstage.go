package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

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

// newISP opens an isp: on the GPU when frame memory is CUDA's, unless the configuration says otherwise; else on the CPU.
// fault hears of a GPU that cannot go on.
func newISP(e env, c *ISPConfig, cfg isp.Config, memory cudahost.Allocator, fault func(error)) (ispStage, error) {
	gpu, ok := memory.(*cudahost.CUDA)
	if c.Device == "cuda" && !ok {
		return nil, fmt.Errorf("isp %s: device cuda needs frame memory of CUDA, this is %s: see memory, and tegracast doctor", c.Name, memory.Backend())
	}
	if c.Device == "cpu" || !ok {
		return isp.New(cfg)
	}
	stage, err := cuda.New(gpu, cfg, cuda.Options{Cache: kernelCache(), Fault: fault})
	if err == nil {
		e.log.Info("isp works on the GPU", "isp", c.Name, "device", gpu.Device.String())
		return stage, nil
	}
	if c.Device == "cuda" || !errors.Is(err, cudahost.ErrNoCUDA) {
		return nil, fmt.Errorf("isp %s: %w", c.Name, err)
	}
	e.log.Warn("isp works on the CPU", "isp", c.Name, "reason", err)
	return isp.New(cfg)
}

// kernelCache is the folder of compiled kernels: the service's state, or the user's cache; "" is none.
func kernelCache() string {
	if dir, _, _ := strings.Cut(os.Getenv("STATE_DIRECTORY"), ":"); dir != "" {
		return filepath.Join(dir, "kernels")
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "tegracast")
}
