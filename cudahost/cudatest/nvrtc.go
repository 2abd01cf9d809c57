package cudatest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/ebitengine/purego"

	"tegracast/cudahost"
)

// nvrtc is Debian's NVRTC 11.8, in which JetPack 5 and later have their capabilities; it compiles without a GPU.
var nvrtc = struct{ version, folder, library, builtins string }{
	"11.8.89", "usr/lib/x86_64-linux-gnu", "libnvrtc.so.11.2", "libnvrtc-builtins.so.11.8",
}

// packages are those of nvrtc, by their SHA-256.
var packages = map[string]string{
	"051b70a3d8737eae470b4158e234cf112c803f631b2c77ae60a24a1146309c22": "libnvrtc11.2_11.8.89~11.8.0-5~deb12u1_amd64.deb",
	"e446e112c304b86a35925bea6a3991a866a29736fac261adb218ec29efb49bb8": "libnvrtc-builtins11.8_11.8.89~11.8.0-5~deb12u1_amd64.deb",
}

const (
	pool         = "http://deb.debian.org/debian/pool/non-free/n/nvidia-cuda-toolkit/"
	fetchTimeout = 5 * time.Minute
)

// Compiler is NVIDIA's own compiler, for a capability such as 87, without a GPU: the machine's, or else Debian's, which is
// fetched once (17 MB) into the user's cache. What it compiles is kept in the folder cache.
func Compiler(t testing.TB, capability int, cache string, log *slog.Logger) *cudahost.Compiler {
	t.Helper()
	open := func() (*cudahost.Compiler, error) {
		return (&cudahost.Device{Capability: capability, Logger: log}).NewCompiler(cache)
	}
	c, err := open()
	if err == nil {
		return c
	}
	folder, err := fetched(t.Context())
	if err != nil {
		t.Skipf("NEEDS NVRTC of the CUDA toolkit, or %s within reach: %v", pool, err)
	}
	for _, name := range []string{nvrtc.builtins, nvrtc.library} { // later it is found by its name
		if _, err := purego.Dlopen(filepath.Join(folder, name), purego.RTLD_NOW|purego.RTLD_GLOBAL); err != nil {
			t.Fatal(err)
		}
	}
	if c, err = open(); err != nil {
		t.Fatal(err)
	}
	return c
}

// fetched is the folder of nvrtc's libraries.
func fetched(ctx context.Context) (string, error) {
	if runtime.GOARCH != "amd64" {
		return "", fmt.Errorf("the package is known for amd64 only")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "tegracast")
	root := filepath.Join(cache, "nvrtc-"+nvrtc.version)
	folder := filepath.Join(root, nvrtc.folder)
	if _, err := os.Stat(root); err == nil {
		return folder, nil
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
	for sum, name := range packages {
		if err := fetch(ctx, name, sum, work); err != nil {
			return "", err
		}
	}
	if err := os.Rename(filepath.Join(work, "root"), root); err != nil {
		if _, there := os.Stat(root); there == nil {
			return folder, nil // another process was quicker
		}
		return "", err
	}
	return folder, nil
}

// fetch fetches a package, and unpacks it in work/root. (curl, since net/http would be most of every program of tests.)
func fetch(ctx context.Context, name, sum, work string) error {
	run := func(tool string, args ...string) error {
		if out, err := exec.CommandContext(ctx, tool, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", tool, err, out)
		}
		return nil
	}
	file := filepath.Join(work, name)
	if err := run("curl", "--silent", "--show-error", "--fail", "--location", "--retry", "2", "--output", file, pool+name); err != nil {
		return err
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
