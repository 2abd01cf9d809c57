// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
)

// TestDoctorClock checks what doctor says of the clock of a network adapter, and that it looks at none that is not
// configured.
func TestDoctorClock(t *testing.T) {
	const tai = 37 * time.Second
	for name, tt := range map[string]struct {
		clock string
		time  adapterTime
		err   error
		grade grade
		says  string
	}{
		"not configured": {"", adapterTime{}, nil, "", ""},
		"the machine's":  {"clock: {source: system}", adapterTime{}, nil, "", ""},
		"good": {
			"clock: {source: phc:/dev/ptp3}",
			adapterTime{"PTP_SYS_OFFSET_PRECISE", tai + 2*time.Microsecond, time.Microsecond, tai},
			nil,
			isGood, "/dev/ptp3 is read by PTP_SYS_OFFSET_PRECISE: 2µs ahead of this machine's clock, plus or minus 1µs",
		},
		"not set":   {"clock: {source: phc:/dev/ptp3}", adapterTime{"x", -1e9 * time.Second, 1, tai}, nil, isWarning, "see that ptp4l sets it"},
		"apart":     {"clock: {source: phc:/dev/ptp3}", adapterTime{"x", tai - 2*time.Millisecond, 1, tai}, nil, isWarning, "2ms behind this"},
		"UTC":       {"clock: {source: phc:/dev/ptp3}", adapterTime{"x", time.Millisecond, 1, tai}, nil, isWarning, "it has UTC and no TAI"},
		"slow":      {"clock: {source: phc:/dev/ptp3}", adapterTime{"x", tai, time.Millisecond, tai}, nil, isWarning, "use an adapter that is read faster"},
		"forbidden": {"clock: {source: phc:/dev/ptp3}", adapterTime{}, fmt.Errorf("open: %w", fs.ErrPermission), isWarning, "clock.source: open: permission denied"},
		"gone":      {"clock: {source: phc:/dev/ptp3}", adapterTime{}, errors.New("no such device"), isWarning, "no such device: use another adapter"},
	} {
		t.Run(name, func(t *testing.T) {
			p := ofPatient(fstest.MapFS{}, 0)
			p.config = func() (*config.Appliance, error) {
				c, err := config.Parse("a test", []byte(strings.Replace(recordingsYAML, "MEMORY", "host", 1)+tt.clock))
				if err != nil {
					t.Error(err)
				}
				return c, err
			}
			p.adapterTime = func(path string) (adapterTime, error) {
				if path != "/dev/ptp3" {
					t.Errorf("it reads %q", path)
				}
				return tt.time, tt.err
			}
			list := p.clock()
			if tt.says == "" {
				if len(list) != 1 {
					t.Errorf("%+v", list)
				}
				return
			}
			expect(t, list, "time", tt.grade, tt.says)
			for _, x := range list {
				if helps(t, x); x.Command != "" {
					exists(t, x.Command)
				}
			}
		})
	}
	if _, err := readAdapter("/dev/null"); err == nil || !strings.Contains(err.Error(), "/dev/null is not a PTP hardware clock") {
		t.Errorf("of another device: %v", err)
	}
}
