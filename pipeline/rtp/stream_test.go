// SPDX-License-Identifier: Apache-2.0

package rtp

import (
	"errors"
	"testing"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

func TestRefusedFormats(t *testing.T) {
	raw, i420 := rtptest.Format(t, pipeline.UYVY, 320, 240, 30), rtptest.Format(t, pipeline.I420, 320, 240, 10)
	with := func(f pipeline.Format, change func(*pipeline.Format)) pipeline.Format { change(&f); return f }
	for name, tt := range map[string]struct {
		s Stream
		f pipeline.Format
	}{
		"raw of I420":       {Stream{}, i420},
		"JPEG of UYVY":      {Stream{Payload: JPEG}, raw},
		"odd width":         {Stream{}, with(raw, func(f *pipeline.Format) { f.Width = 321 })},
		"JPEG beyond 2040":  {Stream{Payload: JPEG}, rtptest.Format(t, pipeline.I420, 2048, 16, 10)},
		"raw too wide":      {Stream{}, rtptest.Format(t, pipeline.UYVY, 32768, 2, 10)},
		"raw too high":      {Stream{}, rtptest.Format(t, pipeline.UYVY, 2, 32768, 10)},
		"no colours":        {Stream{}, with(raw, func(f *pipeline.Format) { f.Color = pipeline.ColorNone })},
		"wrong colours":     {Stream{Payload: JPEG}, with(i420, func(f *pipeline.Format) { f.Color = pipeline.BT709Limited })},
		"write-combined":    {Stream{}, with(raw, func(f *pipeline.Format) { f.Memory = pipeline.MemoryWriteCombined })},
		"packet-ready":      {Stream{}, with(raw, func(f *pipeline.Format) { f.PacketPitch, f.HeaderGap = 1300, 20 })},
		"stride below line": {Stream{}, with(raw, func(f *pipeline.Format) { f.Stride = 100 })},
	} {
		if _, err := NewPacketizer(tt.s, tt.f); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, f := range []pipeline.Format{rtptest.Format(t, pipeline.RGB24, 32767, 2, 10), rtptest.Format(t, pipeline.UYVY, 2, 32767, 10)} {
		if err := (Stream{}).CheckFormat(f); err != nil {
			t.Error(err)
		}
	}
}

// The packets of a line are as specified in docs/rtp.md: the smallest number, and the smallest number of equal size.
func TestPacketReadyTakesTheFewestOfOneSize(t *testing.T) {
	for _, tt := range []struct{ width, mtu, fewest, ready int }{
		{1280, 0, 2, 2},
		{1920, 0, 3, 3},
		{3840, 0, 6, 6},
		{4096, 0, 6, 8},
		{1280, 1280, 3, 4},
		{640, 9000, 1, 0}, // its packets would be much smaller than necessary
	} {
		s, f := Stream{MTU: tt.mtu}, rtptest.Format(t, pipeline.UYVY, tt.width, 2, 30)
		ready, ok := s.PacketReady(f)
		for _, layout := range []struct {
			f    pipeline.Format
			want int
		}{{f, tt.fewest}, {ready, tt.ready}} {
			if ok == (tt.ready > 0) && layout.want == 0 {
				continue
			}
			if got := testPacking(t, s, layout.f).train.Len() / 2; got != layout.want {
				t.Errorf("%d pixels, mtu %d, packet-ready %v: %d packets a line, want %d", tt.width, tt.mtu, layout.f.PacketPitch > 0, got, layout.want)
			}
		}
	}
}

func TestRefusedStreams(t *testing.T) {
	for name, s := range map[string]Stream{
		"mtu":     {MTU: 100},
		"jumbo":   {MTU: 65000},
		"quality": {Quality: 101},
		"payload": {Payload: 4},
		"clock":   {Clock: "ntp=pool"},
	} {
		if err := s.Validate(); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := (Stream{}).Validate(); err != nil {
		t.Error(err)
	}
}
