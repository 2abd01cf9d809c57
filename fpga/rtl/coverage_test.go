// SPDX-License-Identifier: Apache-2.0

package rtl

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// point is an item that Verilator counts in the design: a line, a branch, or a toggling bit.
type point struct{ module, kind, name string }

// pointLine matches a point in verilator_coverage's data: the relevant fields in order, and the count.
var pointLine = regexp.MustCompile(`^C '.*\x01l\x02(\d+)\x01n\x02(\d+).*\x01page\x02v_([a-z]+)/([^\x01']+)(?:\x01o\x02([^\x01']*))?.*' (\d+)$`)

// readCoverage adds up the points of the design's own modules in a file. The instances of a module are combined.
func readCoverage(file string, points map[point]int) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		m := pointLine.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		module, _, _ := strings.Cut(m[4], "__") // without the parameters
		if module == "tcam_sim" || !strings.HasPrefix(module, "tcam_") {
			continue
		}
		n, err := strconv.Atoi(m[6])
		if err != nil {
			return err
		}
		points[point{module, m[3], m[1] + ":" + m[2] + " " + m[5]}] += n
	}
	return lines.Err()
}

// fixed matches bits that cannot toggle in the simulated camera and therefore do not count: its clock's period is a whole
// number of nanoseconds, a frame has at most 128 x 32 samples and 8,192 bytes, and the minimum width is a constant.
var fixed = regexp.MustCompile(strings.Join([]string{
	`^tcam_clock:\S+ (rest|sum|less|carry)\b`,
	`^tcam_camera:\S+ fill_height\[(6|7|8|9|1.)\]$`,
	`^tcam_(pack|pattern):\S+ (height|y)\[(6|7|8|9|1.)\]$`,
	`^tcam_camera:\S+ fill_width\[(8|9|1.)\]$`,
	`^tcam_(pack|pattern):\S+ (width|x)\[(8|9|1.)\]$`,
	`^tcam_camera:\S+ b_size\[.\]\[(8|9|1[0-5]|2[2-9]|3.)\]$`,
	`^tcam_camera:\S+ b_stride\[.\]\[(9|[123].)\]$`,
	`^tcam_(camera|pack):\S+ (b_bytes\[.\]|b_delivered\[.\]|fill_bytes|delivered)\[(1[4-9]|[23].)\]$`,
	`^tcam_registers:\S+ least_width\[`,
}, "|"))

// share returns the percentage of the points of these kinds that were covered, and the missed ones, without those that
// are fixed.
func share(points map[point]int, kinds ...string) (percent float64, missed []string) {
	all := 0
	for p, n := range points {
		name := fmt.Sprint(p.module, ":", p.name)
		if !slices.Contains(kinds, p.kind) || n == 0 && fixed.MatchString(name) {
			continue
		}
		if all++; n == 0 {
			missed = append(missed, name)
		}
	}
	slices.Sort(missed)
	return 100 * float64(all-len(missed)) / float64(max(all, 1)), missed
}

// TestCoverage checks that the tests execute the design's lines and toggle its bits (docs/fpga-design.md, "Coverage").
func TestCoverage(t *testing.T) {
	if os.Getenv("TEGRACAST_LONG") == "" {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make rtl-long)")
	}
	dir := t.TempDir()
	// Registers start at zero here: with random values, the reset would toggle them.
	d, err := openDesign(".", cacheFolder(t), "--coverage-line", "--coverage-toggle", "--x-initial", "0", "--x-assign", "0")
	if err != nil {
		t.Fatal(err)
	}
	runs := 0
	d.covered = func() string {
		runs++
		return filepath.Join(dir, fmt.Sprint(runs, ".dat"))
	}
	if err := examine(d); err != nil {
		t.Fatal(err)
	}
	sum := filepath.Join(dir, "all.dat")
	args := []string{"--write", sum}
	for i := range runs {
		args = append(args, filepath.Join(dir, fmt.Sprint(i+1, ".dat")))
	}
	if out, err := exec.Command("verilator_coverage", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	points := map[point]int{}
	if err := readCoverage(sum, points); err != nil {
		t.Fatal(err)
	}
	lines, notRun := share(points, "line", "branch")
	toggles, still := share(points, "toggle")
	t.Logf("%d simulations: lines and branches %.1f %%, toggles %.1f %%", runs, lines, toggles)
	t.Logf("not run:\n%s\nnot toggled:\n%s", strings.Join(notRun, "\n"), strings.Join(still, "\n"))
	if lines < 95 || toggles < 80 { // most of the others are upper bits of numbers and counters
		t.Errorf("lines and branches %.1f %%, toggles %.1f %%, want 95 and 80", lines, toggles)
	}
}
