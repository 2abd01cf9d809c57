// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/pipeline"
)

// openSource opens a source of any kind.
func (a *Appliance) openSource(c *config.Source) (source, error) {
	switch k := c.Kind.(type) {
	case *config.FPGA:
		return a.openFPGA(c, k)
	case *config.Model:
		return a.openModel(c, k)
	case *config.Replay:
		return a.openReplay(c, k)
	}
	return nil, c.At.Errorf("no source of this kind can be opened: %T", c.Kind)
}

// openStage opens a stage of any kind.
func (a *Appliance) openStage(f *flow, c *config.Stage) (stage, error) {
	switch k := c.Kind.(type) {
	case *config.ISP:
		return a.openISP(f, c, k)
	case *config.Kernel:
		return a.openKernel(f, c, k)
	}
	return nil, c.At.Errorf("no stage of this kind can be opened: %T", c.Kind)
}

// openSink opens an output of any kind. own is what it sends.
func (a *Appliance) openSink(f *flow, o *output, c *config.Output, own pipeline.Format) (pipeline.Sink, error) {
	switch k := c.Kind.(type) {
	case *config.RTP:
		return a.openRTP(f, o, c, k, own)
	case *config.Results:
		return a.openResults(o, c, k)
	case *config.FPGAStream:
		return a.openFPGAStream(o, c, k, own)
	}
	return nil, c.At.Errorf("no output of this kind can be opened: %T", c.Kind)
}
