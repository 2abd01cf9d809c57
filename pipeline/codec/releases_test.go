// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/board/vjetson"
)

// release26 returns Debian 13's openh264, which is libopenh264.so.8, with its headers.
func release26(t testing.TB) vjetson.Packages {
	t.Helper()
	p, err := vjetson.FetchPackages(t.Context(), runtime.GOARCH, "trixie", slog.Default(), "libopenh264-8", "libopenh264-dev")
	if errors.Is(err, vjetson.ErrUnreachable) {
		t.Skipf("NEEDS Debian 13's libopenh264-8 and libopenh264-dev: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	return p
}

// The release of openh264 in Ubuntu 22.04, as its project's commit.
const (
	tag22    = "v2.2.0"
	commit22 = "33c6546396a577afc49ae3a52a59c1d1b5c5ab71"
)

// release22 returns libopenh264.so.6 of release 2.2, which it compiles once, from its project's source, into the user's
// cache.
func release22(t testing.TB) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	library := filepath.Join(cache, "tegracast", "openh264-"+tag22, "libopenh264.so.6")
	if _, err := os.Stat(library); err == nil {
		return library
	}
	if testing.Short() {
		t.Skip("SHORT: compiling openh264 takes a minute")
	}
	if err := os.MkdirAll(filepath.Dir(library), 0o755); err != nil {
		t.Fatal(err)
	}
	work, err := os.MkdirTemp(filepath.Dir(library), "build-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(work)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	run := func(name string, args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%s %s: %w: %s", name, args[0], err, out)
		}
		return strings.TrimSpace(string(out)), err
	}
	if _, err := run("git", "clone", "--quiet", "--depth=1", "--branch="+tag22, "--filter=blob:none", "--sparse", "https://github.com/cisco/openh264", work); err != nil {
		t.Skipf("NEEDS openh264 %s, from https://github.com/cisco/openh264: %v", tag22, err)
	}
	if got, err := run("git", "-C", work, "rev-parse", "HEAD"); err != nil || got != commit22 {
		t.Fatalf("%s is commit %s, not %s: %v", tag22, got, commit22, err)
	}
	_, err = run("git", "-C", work, "sparse-checkout", "set", "build", "codec", "module", "test")
	if err == nil {
		_, err = run("make", "-C", work, "-j2", "USE_ASM=No", "libopenh264.so")
	}
	if err := errors.Join(err, os.Rename(filepath.Join(work, "libopenh264.so."+strings.TrimPrefix(tag22, "v")), library)); err != nil {
		t.Fatal(err)
	}
	return library
}

// TestH264Releases encodes with the releases of openh264 that Ubuntu 22.04 and Debian 13 have. TestH264 does so with that
// of this machine.
func TestH264Releases(t *testing.T) {
	for name, find := range map[string]func(testing.TB) string{
		"2.2": release22,
		"2.6": func(t testing.TB) string {
			files, _ := filepath.Glob(filepath.Join(release26(t).Dir, "usr/lib/*/libopenh264.so.8")) // the pattern is well-formed
			return strings.Join(files, " ")
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := open(find(t))
			if err != nil {
				t.Fatal(err)
			}
			for _, size := range sizes {
				encodes(t, l, size[0], size[1])
			}
		})
	}
}
