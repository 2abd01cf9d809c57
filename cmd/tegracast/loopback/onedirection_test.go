// SPDX-License-Identifier: Apache-2.0

package loopback

import (
	"bytes"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/device"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/tegra/tegrasim"
)

// TestOneDirection measures cards whose memory is accessible in one direction only.
func TestOneDirection(t *testing.T) {
	memory, stream := model.MemoryMapped, model.Stream
	for _, c := range []struct {
		name, direction string
		h2c, c2h        model.Interface
		want            string // the start of the output, or the error
	}{
		{"read only", "c2h", stream, memory, "3 copies of 150000 bytes, compared with nothing: the card has one direction\nmeasured: the FPGA model in this program"},
		{"write only", "h2c", memory, stream, "3 copies of 150000 bytes, compared with nothing: the card has one direction\nmeasured: the FPGA model in this program"},
		{"read only, both", "both", stream, memory, "the card has no memory-mapped channel 0 from host to card: use --direction c2h"},
		{"write only, back", "c2h", memory, stream, "the card has no memory-mapped channel 0 from card to host: use --direction h2c"},
		{"none", "both", stream, stream, "the card has no memory-mapped channel 0: name another one with --channel"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			e := terminal.Env{Out: &out, Err: io.Discard, Log: slog.New(slog.DiscardHandler)}
			m, err := device.NewModel(cudahost.Config{Backend: "host", Logger: e.Log}, 1, func(sim *tegrasim.Sim) model.Config {
				return model.Config{Bus: sim, H2C: []model.Interface{c.h2c}, C2H: []model.Interface{c.c2h}}
			})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			o := Options{Device: ModelName, Size: 150000, Count: 3, Direction: c.direction, Limit: transferLimit, Card: DefaultCard()}
			r, err := validate(t.Context(), e, m, o)
			if err == nil {
				err = r.Print(e.Out, o)
			}
			text := out.String()
			if err != nil {
				text = err.Error()
			}
			if !strings.HasPrefix(text, c.want) || err == nil && (len(r.Lanes) != 1 || r.Lanes[0].Direction != c.direction) {
				t.Errorf("%s\nwant %s", text, c.want)
			}
		})
	}
}
