// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"slices"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
)

// withKernels is a configuration with kernels: one that finds results, one that paints.
const withKernels = `sources: [{name: camera, model: {width: 320, height: 240}}]
isp: [{name: isp}]
kernels:
  - {name: motion, file: ../../../docs/kernels/motion.cu, pixels: grey, output: results, parameters: {share: 0.5}, numbers: [moving], labels: [it], bins: 3, state: 64, time_limit: 50ms}
  - {name: focus, from: isp, file: ../../../docs/kernels/focus.cu}
outputs:
  - {name: raw, from: focus, rtp: {payload: raw, destinations: ["127.0.0.1:5004"]}}
  - {name: lines, from: motion, results: {udp: ["127.0.0.1:5010"]}}
`

// A change of a kernel opens its source's flow again, and no other.
func TestKernelChanges(t *testing.T) {
	two := strings.Replace(withKernels, "240}}]", "240}}, {name: second, model: {width: 320, height: 240}}]", 1)
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
