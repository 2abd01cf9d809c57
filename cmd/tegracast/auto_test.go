// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestServeAuto checks that serve prints the loops' final state.
func TestServeAuto(t *testing.T) {
	programtest.NotShort(t)
	dir := t.TempDir()
	p := rtptest.EvenPorts(t, 2)
	text := strings.NewReplacer("5004", fmt.Sprint(p[0]), "gamma: 1, ", "").Replace(fmt.Sprintf(programtest.WithAuto, "{exposure: {target: 0.1}, white_balance: {}}"))
	text += fmt.Sprintf("web: {listen: \"127.0.0.1:%d\"}\n", p[1])
	serve := programtest.StartProgram(t, "serve", "--config", programtest.Write(t, "auto.yaml", text), "--sdp-dir", dir)
	programtest.Await(t, filepath.Join(dir, "raw.sdp"))
	for frames, pattern := 0.0, regexp.MustCompile(`(?m)^tegracast_stage_frames_total\{stage="isp"\} (\S+)`); frames < 60; time.Sleep(20 * time.Millisecond) {
		_, metrics := fetch(t, fmt.Sprintf("http://127.0.0.1:%d/metrics", p[1]))
		frames = programtest.Found(t, pattern, metrics)
	}
	serve.Stop(t)
	if out := serve.Out.String(); !regexp.MustCompile(`(?m)^isp exposure [0-9.]+ ms gain 1\.00 level 0\.(09|10).* red [0-9.]+ blue [0-9.]+`).MatchString(out) {
		t.Errorf("summary:\n%s", out)
	}
}

func TestBadAuto(t *testing.T) {
	for _, c := range [][3]string{
		{"{name: isp}", "{name: isp, auto: {exposure: {max_exposure: 40ms}}}", "c.yaml:2:51: isp[0].auto.exposure.max_exposure: 40ms: must be up to the frame period, 33.333333ms"},
		{"{name: isp}", "{name: isp, auto: {exposure: {min_exposure: 20ms, max_exposure: 10ms}}}", "isp[0].auto.exposure: exposure from 20ms to 10ms"},
		{"{name: isp}", "{name: isp, auto: {exposure: {min_gain: 4, max_gain: 2}}}", "isp[0].auto.exposure: gain from 4 to 2"},
		{"{name: isp}", "{name: isp, auto: {exposure: {target: 1}}}", "isp[0].auto.exposure.target: 1: must be a number such as 1.5 from 0.01 to 0.9"},
		{"{name: isp}", "{name: isp, auto: {white_balance: {min_red: 5}}}", "isp[0].auto.white_balance: white balance gain from 5 to 4"},
		{"{name: isp}", "{name: isp, auto: {white_balance: {least_red: 5}}}", "c.yaml:2:42: isp[0].auto.white_balance: the key least_red is called min_red now"},
		{"{name: isp}", "{name: isp, auto: {focus: {}}}", `unknown key "focus"`},
		{"{name: isp}]", "{name: isp, auto: {exposure: {}}}, {name: two, auto: {exposure: {}}}]", `isp[1].auto.exposure: isp "isp" controls the exposure of source "camera" already`},
	} {
		refused(t, goodYAML(t, c[0], c[1]), c[2])
	}
	text := strings.NewReplacer("model: {width: 320, height: 240}", "file: {path: x.raw, width: 320, height: 240, sensor: {mosaic: mono}}", "{name: isp}", "{name: isp, auto: {%s: {}}}").Replace(good)
	refused(t, programtest.Write(t, "c.yaml", fmt.Sprintf(text, "exposure")), "isp[0].auto.exposure: source \"camera\" is a file")
	refused(t, programtest.Write(t, "c.yaml", fmt.Sprintf(text, "white_balance")), "isp[0].auto.white_balance: source \"camera\" is monochrome")
}
