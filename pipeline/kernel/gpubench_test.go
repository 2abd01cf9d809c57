// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"testing"

	"github.com/tegracast/tegracast/cudahost/cudatest"
	"github.com/tegracast/tegracast/pipeline"
)

// BenchmarkGPUStage runs frames from host memory to host memory through the example that paints edges, with as many in
// flight as possible.
func BenchmarkGPUStage(b *testing.B) {
	for _, by := range []int{1, 2} {
		for _, transfer := range []Transfer{InPlace, Staged} {
			b.Run(fmt.Sprintf("%dp/%s", 1080*by, [...]string{"", "in-place", "staged"}[transfer]), func(b *testing.B) {
				memory := cudatest.GPU(b)
				s, _ := openStage(b, memory, focusConfig(b), transfer)
				f := format(b, pipeline.UYVY, 1920*by, 1080*by)
				if err := s.Plan(f, []pipeline.Format{f}); err != nil {
					b.Fatal(err)
				}
				const rings = 8
				var ins, outs []*pipeline.Frame
				for range rings {
					ins, outs = append(ins, shared(b, memory, f)), append(outs, shared(b, memory, f))
				}
				n := 0
				for b.Loop() {
					if err := s.Process(b.Context(), ins[n%rings], outs[n%rings:][:1]); err != nil {
						b.Fatal(err)
					}
					n++
				}
				if err := outs[(n-1)%rings].Ready.Wait(b.Context()); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N), "us/frame")
			})
		}
	}
}
