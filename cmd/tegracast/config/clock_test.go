// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"
)

func TestClock(t *testing.T) {
	const text = "sources: [{name: camera, model: {width: 1872, height: 1078}}]\nisp: [{name: isp}]\n" +
		"outputs: [{name: raw, rtp: {payload: raw, destinations: [\"127.0.0.1:5004\"]}}]\n"
	for section, want := range map[string]string{
		"clock: {source: system}":              "",
		"clock: {source: \"phc:/dev/ptp0\"}":   "",
		"clock: {source: phc:/dev/ptp0}":       "",
		"clock: {source: ptp0}":                `clock.source: "ptp0": write system, or phc: and a device file, such as phc:/dev/ptp0`,
		"clock: {source: phc:ptp0}":            `clock.source: "phc:ptp0": write system`,
		"clock: {}":                            "clock: the key source is missing",
		"clock: {source: system, servo: fast}": `clock: unknown key "servo"`,
	} {
		a, err := Parse("c.yaml", []byte(text+section))
		if want == "" && (err != nil || a.Clock == nil) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", section, err)
		}
	}
	for _, source := range []string{"model: {stream: bare, width: 1872, height: 1078}", "file: {path: /dev/null, width: 1872, height: 1078, rate: 30}"} {
		_, err := Parse("c.yaml", []byte(strings.Replace(text, "model: {width: 1872, height: 1078}", source, 1)+"clock: {source: system}"))
		if err == nil || !strings.Contains(err.Error(), "clock: no source has a clock that can follow") {
			t.Errorf("%s: %v", source, err)
		}
	}
	a, err := Parse("c.yaml", []byte(text+"clock: {source: phc:/dev/ptp3}"))
	if err != nil {
		t.Fatal(err)
	}
	if path, is := a.Clock.PHC(); !is || path != "/dev/ptp3" {
		t.Errorf("%q %v", path, is)
	}
}
