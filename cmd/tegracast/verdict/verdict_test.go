// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/receive"
	"github.com/tegracast/tegracast/pipeline/ucx/frames"
)

func TestJudge(t *testing.T) {
	promised := rtp.Media{Rate: pipeline.Rate{Num: 30, Den: 1}, Checksum: true}
	slow := rtp.Media{Rate: pipeline.Rate{Num: 1, Den: 2}}
	good := receive.Stats{Packets: 100, Frames: 10, Matched: 10}
	with := func(change func(*receive.Stats)) receive.Stats {
		st := good
		change(&st)
		return st
	}
	for name, c := range map[string]struct {
		media rtp.Media
		stats receive.Stats
		clean bool
		says  string
	}{
		"good":                {promised, good, true, "clean"},
		"nothing":             {promised, receive.Stats{}, false, "no packet arrived"},
		"lost":                {promised, with(func(s *receive.Stats) { s.Lost = 1 }), false, "NOT clean"},
		"lost here":           {promised, with(func(s *receive.Stats) { s.Lost, s.Drops = 100, 2 }), false, "NOT clean: this machine was too slow and dropped 2 datagrams:"},
		"lost on both":        {promised, with(func(s *receive.Stats) { s.Lost, s.Drops = 1000, 2 }), false, "dropped 2 datagrams, and other packets were lost on their way here:"},
		"lost on the way":     {promised, with(func(s *receive.Stats) { s.Lost = 100 }), false, "NOT clean: none of the lost packets was dropped at this socket"},
		"lost somewhere":      {promised, with(func(s *receive.Stats) { s.Lost, s.Drops = 100, -1 }), false, "NOT clean"},
		"late":                {promised, with(func(s *receive.Stats) { s.Late = 3 }), false, "NOT clean: 3 packets came after their frame had been given up"},
		"two senders":         {promised, with(func(s *receive.Stats) { s.Foreign, s.OtherSender = 7, "SSRC 99" }), false, "another sender (SSRC 99) sends to this port"},
		"wrong pixels":        {promised, with(func(s *receive.Stats) { s.Mismatched = 1 }), false, "NOT clean"},
		"fell silent":         {promised, with(func(s *receive.Stats) { s.Silence = 1100 * time.Millisecond }), false, "silent for the last 1.1 s"},
		"said BYE":            {promised, with(func(s *receive.Stats) { s.Silence, s.Ended = time.Minute, true }), true, "clean"},
		"short pause":         {promised, with(func(s *receive.Stats) { s.Silence = 900 * time.Millisecond }), true, "clean"},
		"slow stream":         {slow, with(func(s *receive.Stats) { s.Silence = 5 * time.Second }), true, "clean"},
		"slow stream, silent": {slow, with(func(s *receive.Stats) { s.Silence = 7 * time.Second }), false, "silent"},
		"promise broken":      {promised, with(func(s *receive.Stats) { s.Matched, s.Unverified = 0, 9 }), false, "promises checksums"},
		"no promise":          {slow, with(func(s *receive.Stats) { s.Matched, s.Unverified = 0, 9 }), true, "clean, pixels not verified"},
	} {
		if clean, verdict := Judge(c.media, c.stats, ""); clean != c.clean || !strings.Contains(verdict, c.says) {
			t.Errorf("%s: %v, %q", name, clean, verdict)
		}
	}
}

// TestCutOff checks that an interrupted reception is never clean, and that its verdict says so and for how long it ran.
func TestCutOff(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	if cut := CutOff(ctx, time.Second, time.Minute); cut != "" {
		t.Errorf("not interrupted: %q", cut)
	}
	cancel()
	cut := CutOff(ctx, 3200*time.Millisecond, 10*time.Second)
	const want = "interrupted after 3.2 s of 10s; until then clean"
	if clean, verdict := Judge(rtp.Media{}, receive.Stats{Packets: 100, Frames: 10, Matched: 10}, cut); clean || verdict != want {
		t.Errorf("%v, %q", clean, verdict)
	}
	st := frames.ReceivedStats{Frames: 1, Matched: 1, Traced: 1, Connections: 1, Connected: true}
	if clean, verdict := JudgeFrames(pipeline.Format{Rate: pipeline.Rate{Num: 30, Den: 1}}, 1, st, cut); clean || verdict != want+" since the FPGA" {
		t.Errorf("%v, %q", clean, verdict)
	}
}

// TestReportOfNothing checks that a missing measurement is not printed as a perfect zero.
func TestReportOfNothing(t *testing.T) {
	out := &strings.Builder{}
	if err := Print(out, "", rtp.Media{}, receive.Stats{}, "", false); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"last packet never\n", "jitter      not measured\n", "latency     not measured\n"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("%q is not in\n%s", line, out.String())
		}
	}
}

// TestForeignNames checks that a sender's description of itself cannot move the cursor or begin a line.
func TestForeignNames(t *testing.T) {
	const hostile = "x\x1b[2J\nclean"
	var out strings.Builder
	if err := Print(&out, hostile, rtp.Media{}, receive.Stats{Packets: 1, Foreign: 1, OtherSender: hostile}, "", false); err != nil {
		t.Fatal(err)
	}
	st := frames.ReceivedStats{Stream: hostile, SenderUCX: hostile, Trouble: hostile}
	if err := PrintFrames(&out, "h:1", pipeline.Format{}, 1, st, "", false); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); strings.Contains(text, "\x1b") || strings.Contains(text, "\nclean") || strings.Count(text, "x?[2J?clean") != 5 {
		t.Errorf("%q", text)
	}
}
