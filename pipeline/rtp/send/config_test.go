// SPDX-License-Identifier: Apache-2.0

package send

import (
	"errors"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

func TestRefusedFormats(t *testing.T) {
	raw, i420 := rtptest.Format(t, pipeline.UYVY, 320, 240, 30), rtptest.Format(t, pipeline.I420, 320, 240, 10)
	with := func(f pipeline.Format, change func(*pipeline.Format)) pipeline.Format { change(&f); return f }
	for name, tt := range map[string]struct {
		c Config
		f pipeline.Format
	}{
		"JPEG of UYVY":    {Config{Stream: rtp.Stream{Payload: rtp.JPEG}}, raw},
		"no rate to pace": {Config{}, with(raw, func(f *pipeline.Format) { f.Rate = pipeline.Rate{} })},
	} {
		if _, err := New(tt.c, tt.f); !errors.Is(err, rtp.ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := testSink(t, Config{}, raw)
	accepts := func(f pipeline.Format) bool {
		g := pipeline.NewGraph(pipeline.GraphConfig{})
		if err := g.AddSource("source", rtptest.NewSource(t, f, 1)); err != nil {
			t.Fatal(err)
		}
		_, err := g.Attach(pipeline.OutputConfig{Name: "rtp", Sink: s})
		return err == nil
	}
	if !accepts(with(raw, func(f *pipeline.Format) { f.Rate.Num = 60 })) || accepts(i420) {
		t.Error("a sink must accept its format at any rate, and no other")
	}
}

func TestRefusedConfigurations(t *testing.T) {
	for name, c := range map[string]Config{
		"odd port":  {Destinations: []string{"127.0.0.1:5005"}},
		"no port":   {Destinations: []string{"127.0.0.1"}},
		"port 0":    {Destinations: []string{"127.0.0.1:0"}},
		"port text": {Destinations: []string{"127.0.0.1:rtp"}},
		"no host":   {Destinations: []string{":5004"}},
		"dscp":      {DSCP: 64},
		"ttl":       {TTL: 256},
		"mtu":       {Stream: rtp.Stream{MTU: 100}},
		"burst":     {Burst: -1},
		"pacing":    {Pacing: 9},
		"way":       {Way: 9},
	} {
		if err := c.Validate(); !errors.Is(err, rtp.ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (Config{Destinations: []string{"[ff15::1]:5004", "239.1.2.3:65534"}, DSCP: 46}).Validate(); err != nil {
		t.Error(err)
	}
}
