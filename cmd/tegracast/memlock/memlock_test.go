// SPDX-License-Identifier: Apache-2.0

package memlock

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
)

// TestOfService checks that the drop-in is read as systemd reads it, and that a mistake in it is reported with its line.
func TestOfService(t *testing.T) {
	for unit, want := range map[string]string{
		"":                                   "no limit",
		"[Service]\n# LimitMEMLOCK=1\n":      "no limit",
		"[Service]\nLimitMEMLOCK=infinity\n": "no limit",
		"# half\n[Service]\nLimitMEMLOCK=7936M\n":                 fmt.Sprint(uint64(7936) << 20),
		"[Service]\n LimitMEMLOCK = 65536\nNice=1\n":              "65536",
		"[Service]\nLimitMEMLOCK=1G\nLimitMEMLOCK=64K:infinity":   "65536",
		"[Service]\nLimitMEMLOCK=16777216T\n":                     DropIn + ":2: LimitMEMLOCK=16777216T: is too large",
		"[Service]\nLimitMEMLOCK=18446744073709551616\n":          DropIn + ":2: LimitMEMLOCK=18446744073709551616: is too large",
		"[Service]\n\nLimitMEMLOCK=half\n":                        DropIn + ":3: LimitMEMLOCK=half: must be a number of bytes",
		"[Service]\nLimitMEMLOCK=\n":                              DropIn + ":2: LimitMEMLOCK=: must be a number of bytes",
		"[Service]\nLimitMEMLOCK=50%\n":                           DropIn + ":2: LimitMEMLOCK=50%: must be a number of bytes",
		"[Service]\nLimitMEMLOCK=-1\n":                            DropIn + ":2: LimitMEMLOCK=-1: must be a number of bytes",
		"LimitMEMLOCK=1G\n":                                       DropIn + ":1: LimitMEMLOCK= belongs below [Service]",
		"[Service]\nLimitMEMLOCK=1G\n[Unit]\nLimitMEMLOCK=1G\n":   DropIn + ":4: LimitMEMLOCK= belongs below [Service]",
		"[Service]\nLimitMEMLOCK=infinity:or so\nLimitNOFILE=1\n": DropIn + ":2: LimitMEMLOCK=infinity:or so: must be",
	} {
		root := fstest.MapFS{}
		if unit != "" {
			root[DropIn[1:]] = &fstest.MapFile{Data: []byte(unit)}
		}
		l, err := OfService(root)
		got := fmt.Sprint(err)
		switch {
		case err == nil && l == nil:
			got = "no limit"
		case err == nil:
			got = fmt.Sprint(l.Bytes)
		}
		if !strings.HasPrefix(got, want) || l != nil && (err != nil || l.Pins || !strings.Contains(l.From, DropIn)) {
			t.Errorf("%q: %s, %+v, want %s", unit, got, l, want)
		}
	}
}

const (
	fpga = `memory: host
sources:
  - name: camera
    slots: 16
    fpga: {device: /dev/tegra_p2p0, width: 4096, height: 2160}
  - {name: small, fpga: {device: /dev/tegra_p2p0, camera: 1, width: 320, height: 240}}
isp: [{name: isp}]
outputs: [{name: back, from: isp, queue: 4, fpga: {}}]
`
	frame = 4096 * 2160 * 2 // of the camera, and of the isp's pictures
	slots = 9               // of the isp's pool: 4 wait, 3 are with the FPGA, and the isp holds 2
)

// TestCheck checks that pinned memory and, in the service, locked memory must fit, and that the part that needs the most
// is named.
func TestCheck(t *testing.T) {
	model := strings.NewReplacer("device: /dev/tegra_p2p0, width: 4096, height: 2160", "width: 1920, height: 1080",
		"fpga: {device: /dev/tegra_p2p0, camera: 1, ", "model: {").Replace(fpga)
	model = strings.Replace(model, "fpga: {width", "model: {width", 1)
	back := strings.Replace(fpga, "queue: 4", "queue: 32", 1)
	for _, c := range []struct {
		name, text string
		limit      *Limit
		want       string // empty: accepted
	}{
		{"no limit", fpga, nil, ""},
		{"enough to pin", fpga, &Limit{Bytes: (16 + slots) * frame * 103 / 100, Pins: true}, ""},
		{
			"too little to pin", fpga, &Limit{Bytes: (16 + slots) * frame, Pins: true, From: "ulimit", Remedy: "raise it"},
			"c.yaml:4:12: sources[0].slots: its 16 slots need 275 MiB of memory that is pinned for FPGAs, and all slots 431 MiB: " +
				"the limit is 421 MiB (ulimit): give it fewer slots, or raise it",
		},
		{
			"too little to lock", strings.Replace(fpga, "name: back, from: isp, queue: 4, fpga: {}", `name: raw, rtp: {payload: raw, destinations: ["127.0.0.1:5004"]}`, 1),
			&Limit{Bytes: 18 * frame}, "memory that is locked, and all slots",
		},
		{"a stage", back, &Limit{Bytes: 16 * frame, Pins: true}, "c.yaml:7:7: isp[0]: its 37 slots need"},
		{"a stage's outputs", back, &Limit{Bytes: 16 * frame, Pins: true}, "give the outputs shorter queues"},
		{"a model in a shell", model, &Limit{Pins: true}, ""},
		{"a model in the service", model, &Limit{Bytes: 64 << 20}, "c.yaml:4:12: sources[0].slots: its 16 slots need"},
		{"a GPU's memory is not locked", strings.Replace(model, "memory: host", "memory: cuda", 1), &Limit{Bytes: 64 << 20}, ""},
		{"a GPU's memory is pinned", strings.Replace(fpga, "memory: host", "memory: cuda", 1), &Limit{Bytes: 64 << 20}, "pinned for FPGAs"},
	} {
		a, err := config.Parse("c.yaml", []byte(c.text))
		if err != nil {
			t.Fatalf("%s: %v\n%s", c.name, err, c.text)
		}
		switch err := c.limit.Check(a); {
		case c.want == "" && err != nil, c.want != "" && !strings.Contains(fmt.Sprint(err), c.want):
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
