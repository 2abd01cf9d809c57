// SPDX-License-Identifier: Apache-2.0

package cudatest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/ebitengine/purego"

	"github.com/tegracast/tegracast/cudahost"
)

// nvrtcPackages are Debian's packages of NVRTC 11.8, with their SHA-256. That version supports Xavier and Orin, and
// compiles without a GPU.
var nvrtcPackages = map[string]string{
	"051b70a3d8737eae470b4158e234cf112c803f631b2c77ae60a24a1146309c22": "libnvrtc11.2_11.8.89~11.8.0-5~deb12u1_amd64.deb",
	"e446e112c304b86a35925bea6a3991a866a29736fac261adb218ec29efb49bb8": "libnvrtc-builtins11.8_11.8.89~11.8.0-5~deb12u1_amd64.deb",
}

const (
	nvrtcFolder  = "nvrtc-11.8.89" // in the cache
	pool         = "http://deb.debian.org/debian/pool/non-free/n/nvidia-cuda-toolkit/"
	fetchTimeout = 5 * time.Minute
)

// errNotHere means that the machine lacks NVRTC and cannot get it.
var errNotHere = errors.New("not within reach")

// Compiler returns NVIDIA's own compiler for a capability such as 87, without a GPU. It uses the machine's NVRTC or
// otherwise Debian's, which is downloaded once (17 MB) into the user's cache. Compiled code is cached in the folder
// cache. Compiler skips the test if it can get no NVRTC.
func Compiler(t testing.TB, capability int, cache string, log *slog.Logger) *cudahost.Compiler {
	t.Helper()
	open := func() (*cudahost.Compiler, error) {
		return (&cudahost.Device{Capability: capability, Logger: log}).NewCompiler(cache)
	}
	c, err := open()
	if err == nil {
		return c
	}
	root, err := fetched(t.Context())
	if errors.Is(err, errNotHere) {
		t.Skipf("NEEDS NVRTC of the CUDA toolkit, or Debian's from %s: %v", pool, err)
	} else if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"libnvrtc-builtins.so.11.8", "libnvrtc.so.11.2"} { // afterwards they are found by name
		path := filepath.Join(root, "usr/lib/x86_64-linux-gnu", name)
		if _, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL); err != nil {
			t.Fatal(err)
		}
	}
	if c, err = open(); err != nil {
		t.Fatal(err)
	}
	return c
}

// fetched returns the folder of the unpacked packages, which it downloads if necessary.
func fetched(ctx context.Context) (string, error) {
	if runtime.GOARCH != "amd64" {
		return "", fmt.Errorf("%w: the package for %s is not listed", errNotHere, runtime.GOARCH)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "tegracast")
	root := filepath.Join(cache, nvrtcFolder)
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(cache, "nvrtc-fetch-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	for sum, name := range nvrtcPackages {
		if err := fetch(ctx, name, sum, work); err != nil {
			return "", err
		}
	}
	if err := os.Rename(filepath.Join(work, "root"), root); err != nil {
		if _, there := os.Stat(root); there == nil {
			return root, nil // another process was faster
		}
		return "", err
	}
	return root, nil
}

// fetch downloads a package and unpacks it into work/root. It uses curl, because net/http would be most of the size of
// every test program.
func fetch(ctx context.Context, name, sum, work string) error {
	run := func(tool string, args ...string) error {
		if out, err := exec.CommandContext(ctx, tool, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", tool, err, out)
		}
		return nil
	}
	file := filepath.Join(work, name)
	if err := run("curl", "--silent", "--show-error", "--fail", "--location", "--retry", "2", "--output", file, pool+name); err != nil {
		return fmt.Errorf("%w: %w", errNotHere, err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if got := sha256.Sum256(text); hex.EncodeToString(got[:]) != sum {
		return fmt.Errorf("%s is not the package that was expected: its SHA-256 is %x", name, got)
	}
	return run("dpkg-deb", "--extract", file, filepath.Join(work, "root"))
}
