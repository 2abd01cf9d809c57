// SPDX-License-Identifier: Apache-2.0

package rtl

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// proof is a proof by yosys about a module: the assertions of its check (check/), which is inserted into it, hold in
// every state of the module.
type proof struct {
	module, check string
	parameters    string // of the module
	steps         string // commands of yosys after those that read the module
	long          bool   // takes half a minute
}

const (
	// By induction: an assertion that holds in a cycle holds in the next one.
	induction = "flatten; opt_clean; sat -tempinduct -prove-asserts -set-assumes -maxsteps 3 -timeout 500 -verify"
	// SAT is slow with long sums modulo two, and BDDs are fast. The remaining logic is constant, or wrong.
	byBDD = "flatten; delete -port w:next; opt_clean -purge; opt; techmap; opt; abc -script +strash;collapse;bdd;muxes;strash;map; opt_clean; " +
		"sat -prove-asserts -timeout 500 -verify"
)

var proofs = []proof{
	{"tcam_crc32c", "check_crc32c #(.BITS(BITS))", "-chparam BITS 128", byBDD, false},
	{"tcam_crc32c", "check_crc32c #(.BITS(BITS))", "-chparam BITS 96", byBDD, false},
	{"tcam_axi", "check_axi", "", induction, false},
	{"tcam_registers", "check_registers", "", induction, false},
	{"tcam_frames", "check_frames #(.BUFFERS(BUFFERS), .BW(BW))", "", induction, true},
	{"tcam_send", "check_send #(.AW(AW))", "-chparam AW 3", induction, true},
}

// flaws lists faults that a proof must find, in the order of proofs: in the module, from is replaced by to.
var flaws = []struct {
	proof    int
	from, to string
}{
	{0, "32'h82f63b78", "32'h82f63b79"},
	{0, "columns[32*i+:32] = c;", "columns[32*i+:32] = i == 77 ? 32'd0 : c;"},
	{1, "mixed = data ^", "mixed = data |"},
	{2, "assign write = awvalid && wvalid && !bvalid;", "assign write = awvalid && wvalid;"},
	{2, "else if (bready) bvalid", "else bvalid"},
	{2, "end else if (rready) rvalid", "end else rvalid"},
	{2, "rdata <= read_data;", "rdata <= rvalid ? rdata : read_data & 32'h7fffffff;"},
	{3, "PERIOD: period <= write_data;", "PERIOD: if (!running) period <= write_data;"},
	{3, "events & ~write_data[4:0] : events) | happened;", "events & ~write_data[4:0] : events | happened);"},
	{3, "TIME_HIGH: read_data = time_high;", "TIME_HIGH: read_data = now[63:32];"},
	{3, "write && write_address == TIME_STEP_HIGH && INDEX == 0;", "time_step || (write && write_address == TIME_STEP_HIGH);"},
	{3, "rate_size <= MAX_RATE ?", "write_data <= MAX_RATE ?"},
	{4, "flush ? {{(31 - BW) {1'b0}}, flushed}", "flush ? {{(31 - BW) {1'b0}}, used}"},
	{4, "(take && !keep ? 32'd1 : 32'd0)", "(take && !free ? 32'd1 : 32'd0)"},
	{5, "wire        go_out = !tvalid || tready;", "wire        go_out = !tvalid || tready || held_zero;"},
	{5, "wire        go_held = !held || go_out;", "wire        go_held = 1'b1;"},
	{5, "!ended && !(trailing && part == 3'd7)", "!ended"},
	{5, "if (held_trailer) trailer_crc", "if (held_trailer || held_zero) trailer_crc"},
	{5, "index < there || complete;", "index <= there || complete;"},
}

// withCheck returns the text of a module with its check.
func (p *proof) withCheck() (string, error) {
	text, err := os.ReadFile(p.module + ".sv")
	if err != nil {
		return "", err
	}
	begin, rest, ok := strings.Cut(string(text), "\nendmodule")
	if !ok || strings.Contains(rest, "endmodule") {
		return "", fmt.Errorf("%s.sv has not one module", p.module)
	}
	return begin + "\n    " + p.check + " check (.*);\nendmodule" + rest, nil
}

// prove runs the proof of the text with yosys. If it fails, prove returns yosys's output.
func (p *proof) prove(t *testing.T, text string) error {
	checked := filepath.Join(t.TempDir(), p.module+".sv")
	if err := os.WriteFile(checked, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	name, _, _ := strings.Cut(p.check, " ")
	files := []string{checked, filepath.Join("check", name+".sv")}
	switch p.module {
	case "tcam_registers":
		files = append(files, "tcam_format.sv")
	case "tcam_send": // SAT is slow with the CRC, so a simpler function replaces it
		files = append(files, filepath.Join("check", "any", "tcam_crc32c.sv"))
	}
	script := fmt.Sprintf("read_verilog -sv -formal %s; hierarchy -check -top %s %s; proc; %s", strings.Join(files, " "), p.module, p.parameters, p.steps)
	out, err := exec.Command("yosys", "-q", "-p", script).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func needYosys(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("yosys"); err != nil {
		t.Skip("NEEDS yosys, which make setup-test installs")
	}
}

// TestProofs checks the proofs of the small blocks, for any input. Those of the larger ones take long.
func TestProofs(t *testing.T) {
	needYosys(t)
	for _, p := range proofs {
		t.Run(p.module+p.parameters, func(t *testing.T) {
			if p.long && os.Getenv("TEGRACAST_LONG") == "" {
				t.Skip("LONG: TEGRACAST_LONG=1 runs it (make rtl-long)")
			}
			text, err := p.withCheck()
			if err != nil {
				t.Fatal(err)
			}
			if err := p.prove(t, text); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestProofsFail checks that the proof of a faulty block fails.
func TestProofsFail(t *testing.T) {
	needYosys(t)
	if os.Getenv("TEGRACAST_LONG") == "" {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make rtl-long)")
	}
	for _, f := range flaws {
		p := proofs[f.proof]
		t.Run(p.module, func(t *testing.T) {
			text, err := p.withCheck()
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(text, f.from); n != 1 {
				t.Fatalf("it has %q %d times", f.from, n)
			}
			var exit *exec.ExitError
			err = p.prove(t, strings.Replace(text, f.from, f.to, 1))
			if !errors.As(err, &exit) || !strings.Contains(err.Error(), "proof did fail") {
				t.Errorf("%q became %q: %v, want that the proof fails", f.from, f.to, err)
			}
		})
	}
}
