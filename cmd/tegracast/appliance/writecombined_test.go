// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline"
)

// TestWriteCombinedIsTheGraphsToo checks that what the check of the configuration might overlook is refused when the
// graph is built, with the names of the reader and the source.
func TestWriteCombinedIsTheGraphsToo(t *testing.T) {
	c, err := config.Parse("wc.yaml", fmt.Appendf(nil, programtest.WriteCombined, 5004, 5006, 5008))
	if err != nil {
		t.Fatal(err)
	}
	c.Memory, c.Stages[0].Kind.(*config.ISP).Device = "host", "cpu" // unknown to the check of the configuration
	_, err = Open(Env{Out: io.Discard, Log: slog.New(slog.DiscardHandler)}, c, Options{})
	if !errors.Is(err, pipeline.ErrMemory) || !strings.Contains(err.Error(), "isp reads frames with the CPU, but camera keeps them in write-combined memory") {
		t.Errorf("%v", err)
	}
}
