// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
)

// TestPlaceOnTheCard uses memory elsewhere on the card, with windows of another size.
func TestPlaceOnTheCard(t *testing.T) {
	for _, c := range []struct {
		args string
		want string // of the error; empty: none
	}{
		{"--address 0x8000 --window 0x8000 --channel 0 --clock 250", ""},
		{"--address 0xf000 --window 0x2000", "AXI decode error"},
		{"--clock 1", "the engine's counters do not agree"},
		{"--channel 1", "the card has no memory-mapped channel 1"},
		{"--window 0", "--window 0: must be from 1"},
		{"--channel 4", "--channel 4: must be from 0 to 3"},
		{"--clock NaN", "--clock NaN: must be from 1 to 1000 MHz"},
		{"--address 0xffffffffffffffff", "go beyond the last address"},
	} {
		t.Run(c.args, func(t *testing.T) {
			var out bytes.Buffer
			args := append(strings.Fields(c.args), "--size", "100000", "--count", "2")
			err := loopbackCommand(t.Context(), env{Env: terminal.Env{Out: &out, Err: io.Discard, Log: slog.New(slog.DiscardHandler)}}, args)
			switch {
			case c.want == "" && (err != nil || !strings.Contains(out.String(), "2 of 2 copies of 100000 bytes right")):
				t.Errorf("%v\n%s", err, out.String())
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
