// SPDX-License-Identifier: Apache-2.0

package config

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/kernel"
)

// TestKernelConfig checks that every key of a kernel reaches the stage's configuration.
func TestKernelConfig(t *testing.T) {
	d, err := Parse("c.yaml", []byte(programtest.WithKernels))
	if err != nil {
		t.Fatal(err)
	}
	want := []kernel.Config{
		{
			Name: "motion", File: "../../../docs/kernels/motion.cu", Entry: "motion", Pixels: pipeline.Grey, Results: true, Parameters: map[string]float64{"share": 0.5},
			Numbers: []string{"moving"}, Labels: []string{"it"}, Bins: 3, State: 64, TimeLimit: 50 * time.Millisecond,
		},
		{Name: "focus", File: "../../../docs/kernels/focus.cu", Entry: "focus", Pixels: pipeline.UYVY},
	}
	for i := range want {
		if got := d.Stages[1+i].Kind.(*Kernel).Config(); !reflect.DeepEqual(got, want[i]) {
			t.Errorf("%+v, want %+v", got, want[i])
		}
	}
	if d.Outputs[0].Source != "camera" || d.Outputs[0].packed {
		t.Error("an output behind a kernel")
	}
}

func TestBadKernels(t *testing.T) {
	for _, c := range [][3]string{
		{"sources", "memory: host\nsources", "c.yaml:5:5: kernels[0]: a kernel works on the GPU: it needs memory: cuda or auto"},
		{"from: isp", "from: isp, sort: 1", `kernels[1]: unknown key "sort"`},
		{"from: isp", "from: nobody", `c.yaml:5:25: kernels[1].from: there is no source, isp or kernel above this one called "nobody"`},
		{"from: isp", "from: focus", `called "focus"`},
		{"from: isp", "from: motion", `kernel "motion" outputs results, not pictures`},
		{"from: isp", "from: camera, pixels: rgb24", `"camera" passes its frames on unchanged`},
		{"name: focus", "name: isp", `"isp" is the name of isp[0] already`},
		{"pixels: grey", "pixels: grau", `use uyvy, uyvp, rgb24, grey, i420 or nv12`},
		{"output: results", "output: nothing", "use frame or results"},
		{"output: results", "output: frame", "numbers, labels and bins are only for kernels with results"},
		{"share: 0.5", "float: 0.5", `kernels[0].parameters: "float": must be a C identifier`},
		{"share: 0.5", "share: 1.0e+300", "parameter share is 1e+300"},
		{"share: 0.5", "share: much", "must be a number"},
		{"[moving]", "[moving, Then]", `kernels[0].numbers[1]: "Then": must be a C identifier`},
		{"state: 64", "state: 2147483648", "must be a whole number from 0 to 1073741824"},
		{"50ms", "1ms", "time limit 1ms: must be from 10ms to 1m0s"},
		{"50ms", "soon", "write a time such as 8ms"},
		{"motion.cu", "none.cu", "kernels[0].file: stat ../../../docs/kernels/none.cu: no such file"},
		{"from: focus, rtp", "from: motion, rtp", `kernel "motion" outputs results, not pictures: read from "isp"`},
		{"from: focus, rtp", "from: focus, scale: half, rtp", "cannot be scaled: leave scale out"},
		{"payload: raw", "payload: jpeg", `kernel "focus" makes UYVY, but the output sends YU12`},
	} {
		if !strings.Contains(programtest.WithKernels, c[0]) {
			t.Fatalf("%q is not there", c[0])
		}
		_, err := Parse("c.yaml", []byte(strings.Replace(programtest.WithKernels, c[0], c[1], 1)))
		if err == nil || !strings.Contains(err.Error(), c[2]) {
			t.Errorf("%s: %v, want %q", c[1], err, c[2])
		}
	}
}
