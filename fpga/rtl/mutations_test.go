// SPDX-License-Identifier: Apache-2.0

package rtl

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// mutations lists faults that the tests must find: in the file, from is replaced by to. They are expressions or
// statements. Faults in the CRC, whose matrix is constant, are among the flaws that a proof must find.
var mutations = []struct{ file, from, to string }{
	{"tcam_pack.sv", "wide ? 4'd2 : 4'd1", "4'd2"},
	{"tcam_pack.sv", "x < width && y < height", "x < width"},
	{"tcam_pack.sv", "x < width && y < height", "y < height"},
	{"tcam_pack.sv", "beats <= written;", "beats <= written + 1'b1;"},
	{"tcam_pack.sv", "overflow <= 1'b1;", ";"},
	{"tcam_pattern.sv", "x < 16'd64", "x < 16'd63"},
	{"tcam_pattern.sv", "moved >= {1'b0, wrap}", "moved > {1'b0, wrap}"},
	{"tcam_send.sv", "!tvalid || tready", "1'b1"},
	{"tcam_send.sv", "!held || go_out", "1'b1"},
	{"tcam_send.sv", "held_zero <= index >= there;", "held_zero <= 1'b0;"},
	{"tcam_send.sv", "!ended && !(trailing && part == 3'd7)", "!ended"},
	{"tcam_send.sv", "pixel_crc <= 32'hffffffff;", "pixel_crc <= 32'hfffffffe;"},
	{"tcam_frames.sv", "used != BUFFERS[BW:0]", "1'b1"},
	{"tcam_frames.sv", "taken_end <= due_end;", "taken_end <= now;"},
	{"tcam_frames.sv", "leave && !forced && !stale", "leave && !forced"},
	{"tcam_frames.sv", "stale || leave", "leave"},
	{"tcam_sensor.sv", "tail_gray <= tail_next ^ (tail_next >> 1);", "tail_gray <= tail_next;"},
	{"tcam_registers.sv", "exposure > period", "exposure >= period"},
	{"tcam_registers.sv", "read_data = sequence_high;", "read_data = sequence_number[31:0];"},
	{"tcam_frames.sv", "due_end <= due_end + moved;", "due_end <= due_end;"},
	{"tcam_clock.sv", "gained <= LESS", "1'b0"},
	{"tcam_axi.sv", "if (rready) rvalid <= 1'b0;", "rvalid <= 1'b0;"},
}

// examine runs all tests of a design, and some frames.
func examine(d *design) error {
	for _, f := range []func(*design) error{registers, noStart, restarts, wraps, forcedEnds, stuck, timeIsSet} {
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

// replace replaces the only occurrence of from in a file.
func replace(t *testing.T, path, from, to string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), from); n != 1 {
		t.Fatalf("%s has %q %d times", path, from, n)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), from, to, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// mutable returns the design with all mutations. An input selects one of them; 0 is none.
func mutable(t *testing.T) *design {
	dir := t.TempDir()
	if out, err := exec.Command("cp", "-r", ".", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	replace(t, filepath.Join(dir, "sim", "tcam_sim.sv"), "    input  wire         clk,", "    input  wire [31:0] mutant,\n    input  wire         clk,")
	for i, m := range mutations {
		chosen, to := fmt.Sprintf("tcam_sim.mutant == %d", i+1), ""
		if strings.HasSuffix(m.from, ";") {
			to = fmt.Sprintf("if (%s) begin %s end else begin %s end", chosen, m.to, m.from)
		} else {
			to = fmt.Sprintf("(%s ? (%s) : (%s))", chosen, m.to, m.from)
		}
		replace(t, filepath.Join(dir, m.file), m.from, to)
	}
	d, err := openDesign(dir, cacheFolder(t), "-CFLAGS", "-DTCAM_MUTANTS")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestMutations injects one fault at a time into the design. Each must be found, and no fault must be reported without
// one.
func TestMutations(t *testing.T) {
	if os.Getenv("TEGRACAST_LONG") == "" {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make rtl-long)")
	}
	theDesign(t) // skips the test without Verilator
	d := mutable(t)
	defer d.mutant(0)
	if err := examine(d); err != nil {
		t.Fatal(err)
	}
	for i, m := range mutations {
		t.Run(fmt.Sprint(i+1, " ", m.file), func(t *testing.T) {
			begin := time.Now()
			d.mutant(uint32(i + 1))
			err := examine(d)
			if err == nil {
				t.Fatalf("nobody noticed that %q became %q", m.from, m.to)
			}
			found, _, _ := strings.Cut(err.Error(), "\n")
			t.Logf("%q, after %v: %s", m.to, time.Since(begin).Round(time.Millisecond), found)
		})
	}
}
