// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/share"
)

// TestShares checks that outputs are listed for users and metrics, with their consumers, and that a closed one is
// removed.
func TestShares(t *testing.T) {
	f, err := pipeline.NewFormat(pipeline.Grey, 64, 48, pipeline.Rate{Num: 30, Den: 1})
	if err != nil {
		t.Fatal(err)
	}
	var s sharedOutputs
	dir := t.TempDir()
	for _, name := range []string{"front", "rear"} {
		if _, err := s.Open(share.Config{Name: name, Socket: filepath.Join(dir, name), Logger: slog.New(slog.DiscardHandler)}, f); err != nil {
			t.Fatal(err)
		}
	}
	k, err := share.Dial(t.Context(), share.ClientConfig{Socket: filepath.Join(dir, "rear")})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	var text bytes.Buffer
	s.Print(&text)
	if line := describeConsumers(s.consumers()); line != "  | front to 0 processes lost 0  | rear to 1 processes lost 0" {
		t.Error(line)
	}
	if !strings.Contains(text.String(), "rear shared: 1 consumers now, 0 before; 0 frames, lost 0\nrear to process ") {
		t.Error(text.String())
	}
	r := prometheus.NewRegistry()
	r.MustRegister(&s)
	if all, err := r.Gather(); err != nil || len(all) != 4 || all[0].GetName() != "tegracast_share_consumers" || all[0].GetMetric()[1].GetGauge().GetValue() != 1 {
		t.Errorf("%v %v", err, all)
	}
	for _, name := range []string{"front", "rear"} {
		if err := s.Close(name); err != nil {
			t.Error(err)
		}
	}
	if describeConsumers(s.consumers()) != "" {
		t.Error("there are outputs left")
	}
}
