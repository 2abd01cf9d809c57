// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// TestRead checks that the output of failed and unfinished tests is printed, that of passed ones is not, and that skipped
// tests are listed by reason.
func TestRead(t *testing.T) {
	const in = `{"Action":"build-output","ImportPath":"b","Output":"b.go:1: wrong\n"}
go: a line that is no JSON
{"Action":"output","Package":"a","Test":"TestGood","Output":"    good_test.go:1: quiet\n"}
{"Action":"pass","Package":"a","Test":"TestGood"}
{"Action":"output","Package":"a","Test":"TestBad","Output":"=== RUN   TestBad\n"}
{"Action":"output","Package":"a","Test":"TestBad","Output":"    bad_test.go:1: loud\n"}
{"Action":"fail","Package":"a","Test":"TestBad"}
{"Action":"output","Package":"a","Test":"TestHangs","Output":"panic: test timed out\n"}
{"Action":"output","Package":"a","Output":"FAIL\ta\t1s\n"}
{"Action":"fail","Package":"a"}
{"Action":"output","Package":"c","Test":"TestGPU","Output":"    log_test.go:9: looked\n"}
{"Action":"output","Package":"c","Test":"TestGPU","Output":"    gpu_test.go:21: NEEDS A GPU\n"}
{"Action":"output","Package":"c","Test":"TestGPU","Output":"--- SKIP: TestGPU (0.00s)\n"}
{"Action":"skip","Package":"c","Test":"TestGPU"}
{"Action":"output","Package":"d","Test":"TestCUDA","Output":"    gpu_test.go:21: NEEDS A GPU\n"}
{"Action":"skip","Package":"d","Test":"TestCUDA"}
{"Action":"skip","Package":"e","Test":"TestMute"}
{"Action":"output","Package":"c","Output":"PASS\n"}
{"Action":"output","Package":"c","Output":"ok  \tc\t1s\n"}
{"Action":"skip","Package":"f"}
{"Action":"output","Package":"g","Test":"TestLate","Output":"    late_test.go:1: quiet, after its end\n"}
{"Action":"pass","Package":"g"}
{"Action":"output","Package":"h","Test":"TestKilled","Output":"    killed_test.go:1: looked\n"}
`
	const want = "b.go:1: wrong\ngo: a line that is no JSON\n    bad_test.go:1: loud\nFAIL\ta\t1s\npanic: test timed out\nok  \tc\t1s\n" +
		"    killed_test.go:1: looked\nskipped:\n  NEEDS A GPU\n    TestCUDA TestGPU\n  no reason\n    TestMute\n"
	var out strings.Builder
	r := reader{&out, map[string][]string{}, map[string][]string{}}
	if err := r.read(strings.NewReader(in)); err != nil {
		t.Fatal(err)
	}
	if r.report(); out.String() != want {
		t.Errorf("%s\nwant\n%s", &out, want)
	}
}
