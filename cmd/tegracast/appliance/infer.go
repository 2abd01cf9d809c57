// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"cmp"
	"fmt"
	"runtime"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/pipeline/infer"
)

func init() { addStage((*stageOpener).openInfer) }

// namedModel is an open stage that runs a model.
type namedModel struct {
	name string
	*infer.Stage
}

// openInfer opens a stage that runs a model.
func (op *stageOpener) openInfer(f *flow, c *config.Stage, k *config.Infer) (stage, error) {
	cfg := k.Config()
	cfg.Logger, cfg.Command = op.log, []string{"/proc/self/exe", "infer"} // also after the program's file has been replaced
	cfg.Infer.Threads = cmp.Or(cfg.Infer.Threads, max(runtime.NumCPU()/2, 1))
	cfg.Infer.Cache = stateOrCache("engines", "engines")
	s, err := infer.NewStage(cfg)
	if err != nil {
		return nil, c.OpenAt.Errorf("%w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.externals = append(f.externals, namedExternal{c.Name, s.Stage})
	f.models = append(f.models, namedModel{c.Name, s})
	return s, nil
}

// String describes the process and the model.
func (m namedModel) String() string {
	st := m.Status()
	text := fmt.Sprintf("%s: %s", m.name, st.State)
	if st.Provider != "" {
		text += " with " + st.Provider
	}
	if n := st.Steps.Frames; n > 0 {
		text += fmt.Sprintf("; a frame takes %.1f ms before the model, %.1f ms in it and %.1f ms after it",
			1e3*st.Steps.Preprocess.Seconds()/float64(n), 1e3*st.Steps.Run.Seconds()/float64(n), 1e3*st.Steps.Postprocess.Seconds()/float64(n))
	}
	for _, f := range st.Failed {
		text += "; " + f
	}
	if st.Error != "" && st.State != infer.Running {
		text += "; " + st.Error
	}
	return text
}
