// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"fmt"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/pipeline/share"
)

func init() { addStage((*stageOpener).openExternal) }

// namedExternal is an open external stage.
type namedExternal struct {
	name string
	*share.Stage
}

// openExternal opens a stage whose work another process does.
func (op *stageOpener) openExternal(f *flow, c *config.Stage, k *config.External) (stage, error) {
	cfg := k.Config()
	cfg.Logger = op.log
	s, err := share.NewStage(cfg)
	if err != nil {
		return nil, c.OpenAt.Errorf("%w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.externals = append(f.externals, namedExternal{c.Name, s})
	return s, nil
}

// String describes the process and its results.
func (x namedExternal) String() string {
	st := x.Stats()
	process := "no process is connected"
	if len(st.Consumers) > 0 {
		process = st.Consumers[0].Who
	}
	return fmt.Sprintf("%s: %s; %d frames with results, %d without; %d results were late", x.name, process, st.Answered, st.Without, st.Late)
}
