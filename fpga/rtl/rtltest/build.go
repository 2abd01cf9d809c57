// SPDX-License-Identifier: Apache-2.0

package rtltest

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Build returns the path of a shared library of the design in dir. Unless the library is already in the folder cache,
// Build makes it there with Verilator and the extra arguments, of which --assert enables the design's checks.
func Build(dir, cache string, extra ...string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	var sources []string
	for _, pattern := range []string{"*.sv", "sim/*.sv", "check/*.sv", "sim/harness.cpp"} {
		files, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(pattern)))
		if err != nil {
			return "", err
		}
		sources = append(sources, files...)
	}
	args := append([]string{
		"--cc", "--exe", "--build", "-j", "2", "-O3", "-Wno-fatal", "--x-assign", "unique", "--x-initial", "unique",
		"--top-module", "tcam_sim", "-CFLAGS", "-fPIC -fno-gnu-unique -DVL_USER_STOP", "-LDFLAGS", "-shared -Wl,-Bsymbolic", "-o", "libtcam.so",
	}, extra...)
	name, err := contentOf(sources, args)
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
	if out, err := exec.Command("verilator", append(append(args, "--Mdir", work), sources...)...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("verilator: %w\n%s", err, out)
	}
	if err := os.Rename(work, filepath.Join(cache, name)); err != nil {
		if _, there := os.Stat(path); there == nil {
			return path, nil // another process was faster
		}
		return "", err
	}
	return path, nil
}

// contentOf returns a name that is derived from the contents of the files and from the arguments.
func contentOf(files, args []string) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, args)
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(sum, len(text), string(text))
	}
	return fmt.Sprintf("rtl-%x", sum.Sum(nil)[:12]), nil
}
