// SPDX-License-Identifier: Apache-2.0

package infer

import (
	"strings"

	"github.com/tegracast/tegracast/pipeline/infer/onnxruntime"
	"github.com/tegracast/tegracast/pipeline/infer/sandbox"
)

// tasks is the number of its user's threads from which on the process starts none. tegracast.service may have 1024.
const tasks = 768

// device reports whether the provider uses a GPU.
func (t *Task) device() bool { return t.Provider != onnxruntime.CPU }

// paths returns what the process may read and write. Data of a model and providers of a library lie in the same folders.
func (t *Task) paths() sandbox.Paths {
	c := &t.Config
	p := sandbox.Paths{Files: []string{c.Model}}
	if strings.Contains(c.Library, "/") { // else the dynamic linker finds it
		p.Files = append(p.Files, c.Library)
	}
	if c.Cache != "" {
		p.Writes = append(p.Writes, c.Cache)
	}
	if t.device() {
		p.Writes = append(p.Writes, "/dev", "/proc") // CUDA does not start if it cannot name its threads, in /proc/self/task/TID/comm
	}
	return p
}
