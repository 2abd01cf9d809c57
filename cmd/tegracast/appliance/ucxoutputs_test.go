// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/ucx"
	"github.com/tegracast/tegracast/pipeline/ucx/frames"
)

// TestOutputs checks that two outputs can share an address and are listed for users and metrics, and that the last one
// releases the address.
func TestOutputs(t *testing.T) {
	f, err := pipeline.NewFormat(pipeline.Grey, 64, 48, pipeline.Rate{Num: 30, Den: 1})
	if err != nil {
		t.Fatal(err)
	}
	var o ucxOutputs
	log := slog.New(slog.DiscardHandler)
	for _, name := range []string{"front", "rear"} {
		_, err := o.Open("127.0.0.1:0", frames.StreamConfig{Name: name}, f, log)
		if errors.Is(err, ucx.ErrNoLibrary) {
			t.Skipf("NEEDS UCX, which make setup-test installs: %v", err)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := o.Open("127.0.0.1:0", frames.StreamConfig{Name: "rear"}, f, log); !errors.Is(err, frames.ErrName) {
		t.Error(err)
	}
	if list := o.open(); len(list) != 2 || list[0].is.server != list[1].is.server {
		t.Errorf("%+v", list)
	}
	var text bytes.Buffer
	o.Print(&text)
	if s := describeConsumers(o.consumers()); !strings.Contains(s, "front to 0 receivers lost 0") || !strings.Contains(text.String(), "rear by UCX: 0 receivers now") {
		t.Error(s, text.String())
	}
	r := prometheus.NewRegistry()
	r.MustRegister(&o)
	if all, err := r.Gather(); err != nil || len(all) != 4 || len(all[0].GetMetric()) != 2 {
		t.Errorf("%v %v", err, all)
	}
	for _, name := range []string{"front", "rear"} {
		if err := o.Close(name); err != nil {
			t.Error(err)
		}
	}
	if len(o.open()) != 0 || describeConsumers(o.consumers()) != "" {
		t.Error("there are outputs left")
	}
}
