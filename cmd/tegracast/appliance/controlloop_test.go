// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// A meter is a sink that records the means of Y', Cb and Cr of every picture.
type meter struct{ means [][3]float64 }

func (*meter) Needs() pipeline.SinkNeeds { return pipeline.SinkNeeds{} }

func (m *meter) Run(ctx context.Context, q *pipeline.Queue) error {
	for {
		f, err := q.Next(ctx)
		if err != nil {
			return nil
		}
		var sum [4]float64
		for i, v := range f.Bytes {
			sum[i%4] += float64(v)
		}
		n := float64(len(f.Bytes) / 4)
		m.means = append(m.means, [3]float64{(sum[1]+sum[3])/2/n - 16, sum[0] / n, sum[2] / n})
		q.Done(f)
	}
}

// controlled streams from the model's sensor through the isp of the configuration, in virtual time, and changes the light
// after half of the frames. It returns the pictures' means and the loop's final state.
func controlled(t *testing.T, section string, frames int, change func(*model.Sensor)) (means [][3]float64, last string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d, err := config.Parse("c.yaml", fmt.Appendf(nil, programtest.WithAuto, section))
		if err != nil {
			t.Fatal(err)
		}
		memory, err := cudahost.Open(cudahost.Config{Backend: "host"})
		if err != nil {
			t.Fatal(err)
		}
		a := newAppliance(Env{Out: io.Discard, Log: slog.New(slog.DiscardHandler)}, Options{})
		a.opener.memory.allocator = memory
		defer func() {
			if err := a.opener.closeAll(); err != nil {
				t.Error(err)
			}
		}()
		if err := a.opener.builder.addFlow(d, &d.Sources[0]); err != nil {
			t.Fatal(err)
		}
		f := a.flows.all()[0]
		in := d.Sources[0].Format
		want, _, err := d.Outputs[0].Formats(in)
		if err != nil {
			t.Fatal(err)
		}
		m := &meter{}
		if _, err := f.graph.Attach(pipeline.OutputConfig{Name: "meter", Sink: m, From: "isp", Format: want, Depth: 2}); err != nil {
			t.Fatal(err)
		}
		half := time.Duration(frames/2)*in.Rate.Period() + in.Rate.Period()/2
		ctx, cancel := context.WithTimeout(t.Context(), 2*half)
		defer cancel()
		time.AfterFunc(half, func() { change(a.opener.cards.list["camera"].model.sensor) })
		wait := f.control(ctx)
		if err := f.graph.Run(ctx); err != nil {
			t.Error(err)
		}
		wait()
		means, last = m.means, a.flows.loops()[0].String()
	})
	if len(means) < frames-3 {
		t.Fatalf("%d pictures of %d", len(means), frames)
	}
	return means, last
}

// Automatic exposure settles within 10 frames after the scene's light has changed by a factor of 4 or 1/4, without
// overshooting. The test covers the path from the sensor's samples to its registers, through driver, graph and isp.
func TestAutoExposure(t *testing.T) {
	for _, factor := range []float64{4, 0.25} {
		const frames = 120
		means, last := controlled(t, "{exposure: {target: 0.1}}", frames, func(s *model.Sensor) { s.SetLight(factor, factor, factor) })
		before := means[frames/2-5][0]
		step := frames/2 - 5
		for math.Abs(means[step][0]/before-1) < 0.3 && step < frames-20 {
			step++
		}
		turned, settled := 0, 0
		for i := step; i < len(means); i++ {
			off, was := means[i][0]/before-1, means[i-1][0]/before-1
			if math.Abs(off) > 0.1 {
				settled = i - step + 1
			}
			if i > step && math.Signbit(off) != math.Signbit(was) && math.Abs(off) > 0.06 {
				turned++
			}
		}
		t.Logf("light times %v: settled after %d frames; %s", factor, settled, last)
		if step == frames-20 || settled > 10 || turned > 0 {
			t.Errorf("light times %v at picture %d: settled after %d frames, turned round %d times: %.1f", factor, step, settled, turned, means[step-3:step+20])
		}
	}
}

// Automatic white balance settles within 20 frames after the colour of the light has changed. The light is also halved, so
// that green does not clip where red and blue no longer do.
func TestAutoWhiteBalance(t *testing.T) {
	const frames = 140
	means, last := controlled(t, "{white_balance: {}}", frames, func(s *model.Sensor) { s.SetLight(0.3, 0.5, 0.375) })
	off := func(i int) float64 {
		before := means[frames/2-5]
		return max(math.Abs(means[i][1]-before[1]), math.Abs(means[i][2]-before[2]))
	}
	step := frames/2 - 5
	for off(step) < 2 && step < frames-30 {
		step++
	}
	settled, worst := 0, 0.0
	for i := step; i < len(means); i++ {
		if worst = max(worst, off(i)); off(i) > 1 {
			settled = i - step + 1
		}
	}
	t.Logf("settled after %d frames from %.1f codes; %s", settled, worst, last)
	if step == frames-30 || settled > 20 {
		t.Errorf("at picture %d: settled after %d frames: %.1f", step, settled, means[step-3:step+25])
	}
}

// The status shows which loops are frozen, and which are at their limits.
func TestAutoStatus(t *testing.T) {
	for section, want := range map[string]string{
		"{exposure: {freeze: true}, white_balance: {freeze: true}}": "isp exposure 10.0 ms gain 1.00 level 0.",
		"{exposure: {max_gain: 1, max_exposure: 1ms}}":              "isp exposure 1.0 ms gain 1.00 level 0.",
	} {
		_, last := controlled(t, section, 60, func(s *model.Sensor) { s.SetLight(0.5, 0.5, 0.5) })
		t.Log(last)
		if !strings.HasPrefix(last, want) || strings.Contains(last, "frozen") != strings.Contains(section, "freeze") ||
			strings.Contains(last, "(too dark for the limits)") != strings.Contains(section, "max_exposure") {
			t.Errorf("%s: %s", section, last)
		}
	}
}

// A reload that changes only freeze keeps the loop's current setting, and releases it, without reopening the source.
func TestFreezeByReload(t *testing.T) {
	const text = `
web: {listen: none}
memory: host
sources: [{name: camera, model: {width: 64, height: 16, rate: 100}}]
isp: [{name: isp, workers: 1, auto: {exposure: {target: 0.1%s}, white_balance: {}}}]
outputs: [{name: raw, rtp: {payload: raw, destinations: ["127.0.0.1:%d"]}}]
`
	port := rtptest.EvenPorts(t, 1)[0]
	s := startReloads(t, fmt.Sprintf(text, "", port))
	source := s.flows.find("camera").source
	for _, freeze := range []string{", freeze: true", ""} {
		s.put(t, fmt.Sprintf(text, freeze, port))
		if s.flows.find("camera").source != source {
			t.Fatal("the source was opened again")
		}
		want := freeze != ""
		for i := 0; s.flows.loops()[0].State().ExposureFrozen != want; i++ {
			if i == 1000 {
				t.Fatalf("frozen: %v, want %v: %s", !want, want, s.flows.loops()[0])
			}
			time.Sleep(5 * time.Millisecond)
		}
		if s.flows.loops()[0].State().GainsFrozen {
			t.Error("the white balance is frozen too")
		}
	}
	s.end(t)
}
