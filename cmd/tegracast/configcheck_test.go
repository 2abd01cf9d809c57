// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
)

// TestAllMistakes checks that config check reports all mistakes in keys and values together, or all combinations that do
// not fit, in the order of the file and without consequential ones, and that serve reports one.
func TestAllMistakes(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string // place, key and message
	}{
		"keys and values": {`memory: gpu
sources: [{name: camera, model: {width: wide, heigth: 240}}]
isp: [{name: isp, gama: 2}]
outputs: [{rtp: {payload: rao, destinations: ["127.0.0.1:5005"]}}]
`, []string{
			`1:9 memory: "gpu": use`, `2:41 sources[0].model.width: "wide"`, `2:47 sources[0].model: unknown key "heigth"`,
			`3:19 isp[0]: unknown key "gama"`, "4:11 outputs[0]: the key name is missing", `4:27 outputs[0].rtp.payload: "rao"`,
		}},
		"what fits together": {`web: {listen: here}
sources: [{name: camera, model: {width: 320, height: 240}}]
isp: [{name: isp}]
outputs:
  - {name: raw, rtp: {payload: raw, destinations: ["127.0.0.1:5005"]}}
  - {name: b, from: nobody, rtp: {payload: raw}}
`, []string{`1:15 web.listen: "here"`, "5:52 outputs[0].rtp.destinations[0]: ", `6:21 outputs[1].from: there is no source and no stage "nobody"`}},
		"several destinations": {`sources: [{name: camera, model: {width: 320, height: 240}}]
isp: [{name: isp}]
bus: {server: "nats://127.0.0.1:4222"}
outputs:
  - {name: raw, rtp: {payload: raw, destinations: [here, "127.0.0.1:5004", "127.0.0.1:5005", "127.0.0.1:5004"]}}
  - {name: found, results: {udp: [there, "127.0.0.1:5010", "127.0.0.1:5010"]}}
`, []string{
			`5:52 outputs[0].rtp.destinations[0]: "here"`, "5:76 outputs[0].rtp.destinations[2]: ", "5:94 outputs[0].rtp.destinations[3]: 127.0.0.1:5004 is",
			`6:35 outputs[1].results.udp[0]: "there"`, "6:60 outputs[1].results.udp[2]: 127.0.0.1:5010 is",
		}},
		"an isp that others take": {`sources: [{name: camera, model: {width: 320, height: 240}}]
isp: [{name: isp, from: nobody}]
kernels: [{name: k, from: isp, file: /dev/null}]
outputs: [{name: raw, rtp: {payload: raw}}]
`, []string{`2:25 isp[0].from: `}},
	} {
		t.Run(name, func(t *testing.T) {
			path := programtest.Write(t, "c.yaml", c.text)
			status, out, errw := runs(t, "config", "check", "--json", path)
			var check Check
			if err := json.Unmarshal([]byte(out), &check); err != nil || status != exitUsage || check.Good || len(check.Mistakes) != len(c.want) {
				t.Fatalf("status %d, %v:\n%s", status, err, out)
			}
			lines := strings.Split(errw, "\n")
			if len(lines) != len(check.Mistakes) {
				t.Errorf("standard error: %s", errw)
			}
			for i, m := range check.Mistakes {
				place, message, _ := strings.Cut(c.want[i], " ")
				if fmt.Sprintf("%d:%d", m.Line, m.Column) != place || !strings.HasPrefix(m.Message, path+":"+place+": "+message) || !strings.HasPrefix(message, m.Key) {
					t.Errorf("%+v, want %s", m, c.want[i])
				}
				if lines[i] != m.Message {
					t.Errorf("standard error: %s, want %s", lines[i], m.Message)
				}
			}
			if _, _, errw := runs(t, "serve", "--config", path); strings.Contains(errw, "\n") {
				t.Errorf("serve: %s", errw)
			}
		})
	}
	status, out, _ := runs(t, "config", "check", "--json", programtest.Write(t, "c.yaml", good))
	if status != exitOK || !strings.Contains(out, `"good": true`) || !strings.Contains(out, `"mistakes": []`) {
		t.Errorf("a good one: status %d\n%s", status, out)
	}
}

// TestNoYAML checks that invalid YAML is reported in our own words, with its place.
func TestNoYAML(t *testing.T) {
	for text, want := range map[string]string{
		"memory: \"host\nsources: []\n":                         `:1:9: "\"host": the " that begins here does not end`,
		"memory: 'host\nsources: []\n":                          `the ' that begins here does not end`,
		"sources: [{name: a, model: {width: 320}\noutputs: 1\n": `:2:1: "outputs": a , is missing in front of this, or a } in the lines before`,
		"sources: [{name: a}\noutputs: []\n":                    `:2:1: "outputs": a , is missing in front of this, or a ] in the lines before`,
		"sources: [a\n":                                         `"[": the [ that begins here does not end`,
		"sources: [{name: a\n":                                  `"{": the { that begins here does not end`,
		"sources:\n  - name: a\n   model: {}\n":                 `:3:4: "model": this does not belong here`,
		"sources:\n\t- name: a\n":                               `:2:1: a tab indents this line: indent with spaces`,
		"sources\noutputs: []\n":                                `a : and a space are missing behind the key`,
		"memory: host: x\n":                                     `:1:9: "host": a second : in this line`,
		"memory: @x\n":                                          `"@": no text begins with this character: put it in quotes`,
		"web: {listen: none}}\n":                                `:1:20: "}": this does not belong here`,
	} {
		status, _, errw := runs(t, "config", "check", programtest.Write(t, "c.yaml", text))
		if status != exitUsage || !strings.Contains(errw, want) || strings.Contains(errw, "\n") {
			t.Errorf("%q: status %d, %s, want %s", text, status, errw, want)
		}
	}
}
