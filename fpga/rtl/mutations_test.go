// SPDX-License-Identifier: Apache-2.0

package rtl

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// mutations are faults that the tests must find: in the file, the one becomes the other.
var mutations = []struct{ file, from, to string }{
	{"tcam_crc32c.sv", "32'h82f63b78", "32'h82f63b79"},
	{"tcam_crc32c.sv", "i < BITS; i = i + 1) column =", "i < BITS - 1; i = i + 1) column ="},
	{"tcam_pack.sv", "wide ? 4'd2 : 4'd1", "4'd2"},
	{"tcam_pack.sv", "x < width && y < height", "x < width"},
	{"tcam_pack.sv", "x < width && y < height", "y < height"},
	{"tcam_pack.sv", "beats <= written;", "beats <= written + 1'b1;"},
	{"tcam_pack.sv", "end else overflow <= 1'b1;", "end"},
	{"tcam_pattern.sv", "x < 16'd64", "x < 16'd63"},
	{"tcam_pattern.sv", "moved >= {1'b0, wrap}", "moved > {1'b0, wrap}"},
	{"tcam_send.sv", "wire        go_out = !tvalid || tready;", "wire        go_out = 1'b1;"},
	{"tcam_send.sv", "wire        go_held = !held || go_out;", "wire        go_held = 1'b1;"},
	{"tcam_send.sv", "held_zero <= index >= there;", "held_zero <= 1'b0;"},
	{"tcam_send.sv", "!ended && !(trailing && part == 3'd7)", "!ended"},
	{"tcam_send.sv", "pixel_crc <= 32'hffffffff;", "pixel_crc <= 32'hfffffffe;"},
	{"tcam_frames.sv", "used != BUFFERS[BW:0]", "1'b1"},
	{"tcam_frames.sv", "taken_end <= due_end;", "taken_end <= now;"},
	{"tcam_frames.sv", "if (leave && !forced && !stale) delivered", "if (leave && !forced) delivered"},
	{"tcam_frames.sv", "{{BW{1'b0}}, stale || leave};", "{{BW{1'b0}}, leave};"},
	{"tcam_sensor.sv", "tail_gray <= tail_next ^ (tail_next >> 1);", "tail_gray <= tail_next;"},
	{"tcam_registers.sv", "exposure > period", "exposure >= period"},
	{"tcam_registers.sv", "SEQUENCE_HIGH: read_data = sequence_high;", "SEQUENCE_HIGH: read_data = sequence_number[31:0];"},
	{"tcam_axi.sv", "end else if (rready) rvalid", "end else rvalid"},
}

// examine is all tests of a design, and some frames.
func examine(d *design) error {
	for _, f := range []func(*design) error{registers, noStart, restarts, wraps, forcedEnds, stuck} {
		if err := f(d); err != nil {
			return err
		}
	}
	for seed := uint64(1); seed <= 30; seed++ {
		if err := sensorFrames(d, seed); err != nil {
			return err
		}
	}
	_, err := patterns(d, 100)
	return err
}

// TestMutations plants one fault at a time in a copy of the design. Each must be found, and none is found without.
func TestMutations(t *testing.T) {
	if os.Getenv("TEGRACAST_LONG") == "" {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make rtl-long)")
	}
	if err := examine(theDesign(t)); err != nil {
		t.Fatal(err)
	}
	for i, m := range mutations {
		t.Run(fmt.Sprint(i, " ", m.file), func(t *testing.T) {
			dir := t.TempDir()
			if out, err := exec.Command("cp", "-r", ".", dir).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			path := filepath.Join(dir, m.file)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(text), m.from); n != 1 {
				t.Fatalf("it has %q %d times", m.from, n)
			}
			if err := os.WriteFile(path, []byte(strings.Replace(string(text), m.from, m.to, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			d, err := openDesign(dir, filepath.Join(dir, "built"))
			if err != nil {
				t.Fatal(err)
			}
			err = examine(d)
			if err == nil {
				t.Fatalf("nobody noticed that %q became %q", m.from, m.to)
			}
			found, _, _ := strings.Cut(err.Error(), "\n")
			t.Logf("%q: %s", m.to, found)
		})
	}
}
