// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"slices"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
)

// A change of a kernel reopens only its source's flow.
func TestKernelChanges(t *testing.T) {
	two := strings.Replace(programtest.WithKernels, "240}}]", "240}}, {name: second, model: {width: 320, height: 240}}]", 1)
	old, err := config.Parse("c.yaml", []byte(two))
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{"share: 0.5": "share: 0.6", "50ms": "60ms", "from: isp, file": "from: isp, state: 4, file"} {
		next, err := config.Parse("c.yaml", []byte(strings.Replace(two, from, to, 1)))
		if err != nil {
			t.Fatal(err)
		}
		list := config.Changes(old, next)
		p := planned(old, next)
		if len(list) != 1 || !strings.HasPrefix(list[0], "kernels[") || !p.flows["camera"] || p.flows["second"] || p.memory || !p.outputs["raw"] || !p.outputs["lines"] {
			t.Errorf("%s: %v, %+v", to, list, p)
		}
	}
	if got := config.Changes(old, old); !slices.Equal(got, nil) {
		t.Errorf("%v", got)
	}
}
