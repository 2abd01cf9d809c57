package main

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/tegra/tegrasim"
)

// TestOneDirection measures cards whose memory is reached one way only.
func TestOneDirection(t *testing.T) {
	memory, stream := model.MemoryMapped, model.Stream
	for _, c := range []struct {
		name, direction string
		h2c, c2h        model.Interface
		want            string // the beginning of the output, or the error
	}{
		{"read only", "c2h", stream, memory, "3 copies of 150000 bytes, compared with nothing: the card has one direction\nc2h: "},
		{"write only", "h2c", memory, stream, "3 copies of 150000 bytes, compared with nothing: the card has one direction\nh2c: "},
		{"read only, both", "both", stream, memory, "the card has no memory-mapped channel 0 from host to card: use --direction c2h"},
		{"write only, back", "c2h", memory, stream, "the card has no memory-mapped channel 0 from card to host: use --direction h2c"},
		{"none", "both", stream, stream, "the card has no memory-mapped channel 0: name another one with --channel"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			e := env{out: &out, err: io.Discard, log: slog.New(slog.DiscardHandler)}
			device, err := newModelDevice(e, "host", 1, func(sim *tegrasim.Sim) model.Config {
				return model.Config{Bus: sim, H2C: []model.Interface{c.h2c}, C2H: []model.Interface{c.c2h}}
			})
			if err != nil {
				t.Fatal(err)
			}
			defer device.Close()
			o := loopbackOptions{size: 150000, count: 3, direction: c.direction, limit: copyLimit, card: defaultCard}
			r, err := validate(t.Context(), e, device, o)
			if err == nil {
				err = r.print(e, o)
			}
			text := out.String()
			if err != nil {
				text = err.Error()
			}
			if !strings.HasPrefix(text, c.want) || err == nil && len(r.Lanes) != 1 {
				t.Errorf("%s\nwant %s", text, c.want)
			}
		})
	}
}

// TestPlaceOnTheCard goes through memory elsewhere on the card, in windows of another size.
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
			err := loopback(t.Context(), env{out: &out, err: io.Discard, log: slog.New(slog.DiscardHandler)}, args)
			switch {
			case c.want == "" && (err != nil || !strings.Contains(out.String(), "2 of 2 copies of 100000 bytes right")):
				t.Errorf("%v\n%s", err, out.String())
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
