// SPDX-License-Identifier: Apache-2.0

package rtltest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// ErrVerilator says that Verilator is not here, or does not like the design.
var ErrVerilator = errors.New("verilator")

// TraceFile is where the waveforms of the simulation that is made last go; empty: there are none.
func TraceFile() string { return os.Getenv("TEGRACAST_RTL_TRACE") }

// Need skips the test on a machine without Verilator, and returns the folder in which libraries are kept.
func Need(t testing.TB) (cache string) {
	t.Helper()
	if _, err := exec.LookPath("verilator"); err != nil {
		t.Skip("NEEDS verilator, which make setup-test installs")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(cache, "tegracast")
}

// Verilator runs Verilator on the design in dir.
func Verilator(dir string, args ...string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.sv"))
	if err != nil {
		return err
	}
	args = append(args, append(files, filepath.Join(dir, "sim", "tcam_sim.sv"))...)
	if out, err := exec.Command("verilator", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %w\n%s", ErrVerilator, err, out)
	}
	return nil
}

// Build returns the path of the design in dir as a shared library. It is built in the folder cache, with these arguments beside
// the usual ones, if it is not there.
func Build(dir, cache string, extra ...string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	args := append([]string{
		"--cc", "--exe", "--build", "-j", "2", "-O3", "-Wno-fatal", "--x-assign", "unique", "--x-initial", "unique",
		"--top-module", "tcam_sim", "-CFLAGS", "-fPIC -fno-gnu-unique", "-LDFLAGS", "-shared -Wl,-Bsymbolic", "-o", "libtcam.so",
	}, extra...)
	if TraceFile() != "" {
		args = append(args, "--trace")
	}
	name, err := contentOf(dir, args)
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, name, "libtcam.so")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(cache, "rtl-build-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	if err := Verilator(dir, append(args, "--Mdir", work, filepath.Join(dir, "sim", "harness.cpp"))...); err != nil {
		return "", err
	}
	if err := os.Rename(work, filepath.Join(cache, name)); err != nil {
		if _, there := os.Stat(path); there == nil {
			return path, nil // another process was quicker
		}
		return "", err
	}
	return path, nil
}

// contentOf is a name for what is built from the folder, by these arguments.
func contentOf(dir string, args []string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.sv"))
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintln(sum, args)
	for _, f := range append(files, filepath.Join(dir, "sim", "tcam_sim.sv"), filepath.Join(dir, "sim", "harness.cpp")) {
		text, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(sum, len(text), string(text))
	}
	return fmt.Sprintf("rtl-%x", sum.Sum(nil)[:12]), nil
}
