// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
)

// TestSending compares raw streams to several destinations with the processors. Other payloads and sources whose format
// is not known count nothing.
func TestSending(t *testing.T) {
	for _, tt := range []struct {
		destinations, processors int
		payload                  string
		grade                    grade
		says                     string
	}{
		{3, 8, "raw", isGood, "raw streams of 6.5 Gb/s to all destinations need about 1 of this machine's 8 processors"},
		{50, 16, "raw", isGood, "Gb/s to all destinations need about 13 of this machine's 16 processors"},
		{50, 8, "raw", isWarning, "need about 13 processors, and this machine has 8: frames"},
		{50, 1, "jpeg", "", ""},
	} {
		var list []string
		for i := range tt.destinations {
			list = append(list, fmt.Sprintf("10.0.0.%d:5004", i+1))
		}
		yaml := fmt.Sprintf(`sources: [{name: camera, model: {rate: 60}}]
isp: [{name: isp}]
outputs: [{name: front, rtp: {payload: %s, destinations: [%s]}}]`, tt.payload, `"`+strings.Join(list, `", "`)+`"`)
		p := ofPatient(fstest.MapFS{"proc/cpuinfo": {Data: []byte(strings.Repeat("processor\t: 0\nmodel name\t: x\n\n", tt.processors))}}, 0)
		p.config = func() (*config.Appliance, error) { return config.Parse("a test", []byte(yaml)) }
		got := p.sending()
		if tt.grade == "" {
			if len(got) != 0 {
				t.Errorf("%+v: %+v", tt, got)
			}
			continue
		}
		expect(t, got, "sending", tt.grade, tt.says)
		for _, x := range got {
			helps(t, x)
		}
	}
}
