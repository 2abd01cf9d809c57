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
		"raw of I420":       {Config{}, i420},
		"JPEG of UYVY":      {Config{Stream: rtp.Stream{Payload: rtp.JPEG}}, raw},
		"odd width":         {Config{}, with(raw, func(f *pipeline.Format) { f.Width = 321 })},
		"JPEG beyond 2040":  {Config{Stream: rtp.Stream{Payload: rtp.JPEG}}, rtptest.Format(t, pipeline.I420, 2048, 16, 10)},
		"no colours":        {Config{}, with(raw, func(f *pipeline.Format) { f.Color = pipeline.ColorNone })},
		"wrong colours":     {Config{Stream: rtp.Stream{Payload: rtp.JPEG}}, with(i420, func(f *pipeline.Format) { f.Color = pipeline.BT709Limited })},
		"write-combined":    {Config{}, with(raw, func(f *pipeline.Format) { f.Memory = pipeline.MemoryWriteCombined })},
		"no rate to pace":   {Config{}, with(raw, func(f *pipeline.Format) { f.Rate = pipeline.Rate{} })},
		"packet-ready":      {Config{}, with(raw, func(f *pipeline.Format) { f.PacketPitch, f.HeaderGap = 1300, 20 })},
		"stride below line": {Config{}, with(raw, func(f *pipeline.Format) { f.Stride = 100 })},
	} {
		if _, err := New(tt.c, tt.f); !errors.Is(err, rtp.ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := testSink(t, Config{}, raw)
	if !s.Accepts(with(raw, func(f *pipeline.Format) { f.Rate.Num = 60 })) || s.Accepts(i420) {
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
		"jumbo":     {Stream: rtp.Stream{MTU: 65000}},
		"quality":   {Stream: rtp.Stream{Quality: 101}},
		"burst":     {Burst: -1},
		"payload":   {Stream: rtp.Stream{Payload: 3}},
		"pacing":    {Pacing: 9},
		"way":       {Way: 9},
		"clock":     {Stream: rtp.Stream{Clock: "ntp=pool"}},
	} {
		if err := c.Validate(); !errors.Is(err, rtp.ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (Config{Destinations: []string{"[ff15::1]:5004", "239.1.2.3:65534"}, DSCP: 46}).Validate(); err != nil {
		t.Error(err)
	}
}
