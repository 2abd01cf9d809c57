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

// TestEndOfALostGPU checks that after the loss of the GPU a part that never closes does not keep the program running, and
// that parts that may hang with it are left alone.
func TestEndOfALostGPU(t *testing.T) {
	log := &logLines{}
	a := newAppliance(Env{Out: io.Discard, Log: slog.New(slog.NewTextHandler(log, nil))}, Options{})
	stuck := make(chan struct{})
	defer close(stuck)
	touched := false
	lost := &kernel.FaultError{Kernel: "k", Err: kernel.ErrHung}
	broken := &flow{name: "broken", graph: pipeline.NewGraph(pipeline.GraphConfig{}), stages: []func() error{
		func() error { touched = true; return nil },
		func() error { return lost },
	}}
	waits := &flow{name: "waits", graph: pipeline.NewGraph(pipeline.GraphConfig{}), stages: []func() error{func() error { <-stuck; return nil }}}
	if err := a.opener.builder.dropFlow(broken); !errors.Is(err, kernel.ErrHung) || touched || !pipeline.DeviceLost(err) {
		t.Errorf("%v, touched %v", err, touched)
	}
	a.flows.list = []*flow{waits}
	if err := a.opener.closeAfter(lost); err != nil || !strings.Contains(log.take(), "the GPU does not answer") {
		t.Error(err)
	}
}
