// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/kernel"
)

// TestEndOfALostGPU: what never closes does not keep the program, once the GPU is lost; what may hang with it is not touched.
func TestEndOfALostGPU(t *testing.T) {
	log := &logLines{}
	a := newAppliance(Env{Out: io.Discard, Log: slog.New(slog.NewTextHandler(log, nil))})
	stuck := make(chan struct{})
	defer close(stuck)
	touched := false
	lost := &kernel.FaultError{Kernel: "k", Err: kernel.ErrHung}
	broken := &flow{name: "broken", graph: pipeline.NewGraph(pipeline.GraphConfig{}), stages: []func() error{
		func() error { touched = true; return nil },
		func() error { return lost },
	}}
	waits := &flow{name: "waits", graph: pipeline.NewGraph(pipeline.GraphConfig{}), stages: []func() error{func() error { <-stuck; return nil }}}
	if err := a.dropFlow(broken); !errors.Is(err, kernel.ErrHung) || touched || !pipeline.DeviceLost(err) {
		t.Errorf("%v, touched %v", err, touched)
	}
	a.flows = []*flow{waits}
	if err := a.end(lost); err != nil || !strings.Contains(log.take(), "the GPU does not answer") {
		t.Error(err)
	}
}
