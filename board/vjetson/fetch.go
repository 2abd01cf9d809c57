// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	keyring      = "/usr/share/keyrings/debian-archive-keyring.gpg"
	fetchTimeout = 10 * time.Minute
	completeMark = "complete" // a file in the folder of the unpacked packages, written last
)

// defaultSeries is the kernel series of Debian 12.
const defaultSeries = "6.1"

// Series lists the series of kernels that a machine can run: those of Debian 11 and Debian 12, and the newer one for
// Debian 12.
var Series = []string{"5.10", defaultSeries, "6.12"}

// Kernel is Debian's kernel with its modules, headers and the programs for a small root, unpacked in the cache.
type Kernel struct {
	Arch    string // Debian's and Go's name: "arm64" or "amd64"
	Release string // uname -r: "6.1.0-56-arm64"
	Dir     string // folder of the unpacked packages
}

// Image returns the path of the kernel's file.
func (k Kernel) Image() string { return filepath.Join(k.Dir, "boot", "vmlinuz-"+k.Release) }

// CacheDir returns the path of the folder with the machine's packages, outside the source tree. The folder is created
// when it is needed, and may be removed.
func CacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("vjetson: no cache folder (set HOME or XDG_CACHE_HOME): %w", err)
	}
	return filepath.Join(dir, "tegracast", "vjetson"), nil
}

// Fetch returns the newest kernel of Debian 12's series, 6.1. See FetchSeries.
func Fetch(ctx context.Context, arch string, log *slog.Logger) (Kernel, error) {
	return FetchSeries(ctx, arch, defaultSeries, log)
}

// FetchSeries returns the newest kernel of a series in the cache. If there is none, it fetches Debian's with apt-get,
// which verifies every package with Debian's keyring. It keeps its own apt state and changes no package of this machine.
// Progress goes to log. Several processes may call it at the same time.
func FetchSeries(ctx context.Context, arch, series string, log *slog.Logger) (Kernel, error) {
	if !slices.Contains(Series, series) {
		return Kernel{}, fmt.Errorf("vjetson: kernel series %q, want one of %s", series, strings.Join(Series, ", "))
	}
	find := func(dir string) (Kernel, bool) { return cached(dir, arch, series) }
	return once(ctx, find, func(ctx context.Context, dir string) (Kernel, error) {
		return fetch(ctx, dir, arch, series, log)
	})
}

// once returns the result of find in the cache or, if that finds nothing, of fetch, which runs in one process at a time
// and for at most fetchTimeout.
func once[T any](ctx context.Context, find func(dir string) (T, bool), fetch func(ctx context.Context, dir string) (T, error)) (none T, err error) {
	dir, err := CacheDir()
	if err != nil {
		return none, err
	}
	if found, ok := find(dir); ok {
		return found, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return none, fmt.Errorf("vjetson: cache: %w", err)
	}
	unlock, err := lock(ctx, filepath.Join(dir, "lock"))
	if err != nil {
		return none, err
	}
	defer unlock()
	if found, ok := find(dir); ok {
		return found, nil // another process was faster
	}
	if err := needTools(map[string]string{
		"apt-get": "apt", "apt-cache": "apt", "dpkg": "dpkg", "xz": "xz-utils", keyring: "debian-archive-keyring",
	}); err != nil {
		return none, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, fetchTimeout, fmt.Errorf("fetching took more than %v", fetchTimeout))
	defer cancel()
	return fetch(ctx, dir)
}

// cached returns the newest complete kernel of a series in the cache. The bool is false if there is none.
func cached(dir, arch, series string) (Kernel, bool) {
	root, ok := newest(dir, series+".*-"+arch)
	return Kernel{Arch: arch, Release: filepath.Base(root), Dir: root}, ok
}

// newest returns the complete folder in the cache whose name matches the pattern and has the highest numbers. The bool
// is false if there is none.
func newest(dir, pattern string) (string, bool) {
	marks, _ := filepath.Glob(filepath.Join(dir, pattern, completeMark))
	if len(marks) == 0 {
		return "", false
	}
	return filepath.Dir(slices.MaxFunc(marks, func(a, b string) int {
		return compareReleases(filepath.Base(filepath.Dir(a)), filepath.Base(filepath.Dir(b)))
	})), true
}

// lock waits until it holds the cache's lock, a lock on the file at path, or until ctx ends.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("vjetson: cache: %w", err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, fmt.Errorf("vjetson: lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("vjetson: another process fetches (lock %s): %w", path, context.Cause(ctx))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func fetch(ctx context.Context, dir, arch, series string, log *slog.Logger) (Kernel, error) {
	log.Info("fetching Debian's kernel for the virtual Jetson, once", "arch", arch, "series", series, "cache", dir)
	a, err := newApt(ctx, dir, arch, series, log)
	if err != nil {
		return Kernel{}, err
	}
	releases, err := a.releases(ctx, series)
	if err != nil {
		return Kernel{}, err
	}
	work, err := os.MkdirTemp(dir, "fetch-")
	if err != nil {
		return Kernel{}, fmt.Errorf("vjetson: cache: %w", err)
	}
	defer os.RemoveAll(work)
	got, err := a.download(ctx, work, releases)
	if err != nil {
		return Kernel{}, err
	}
	unpacked := filepath.Join(work, "root")
	if err := unpack(ctx, work, unpacked, log); err != nil {
		return Kernel{}, err
	}
	if err := command(ctx, "sh", "-c", `find "$1/lib/modules" -name '*.ko.xz' -print0 | xargs -0r xz -d`, "unpack", unpacked); err != nil {
		return Kernel{}, err
	}
	root := filepath.Join(dir, got)
	if err := finish(unpacked, root, got, arch); err != nil {
		return Kernel{}, fmt.Errorf("vjetson: cache: %w", err)
	}
	return Kernel{Arch: arch, Release: got, Dir: root}, nil
}

// unpack unpacks every package in the folder debs into the folder to.
func unpack(ctx context.Context, debs, to string, log *slog.Logger) error {
	files, _ := filepath.Glob(filepath.Join(debs, "*.deb"))
	for _, deb := range files {
		log.Info("unpacking", "package", filepath.Base(deb))
		if err := command(ctx, "dpkg", "-x", deb, to); err != nil {
			return fmt.Errorf("%w (package %s)", err, filepath.Base(deb))
		}
	}
	return nil
}

// finish makes the headers' Makefile include that of their common part, by its path in root, and moves the folder
// unpacked to root.
func finish(unpacked, root, release, arch string) error {
	headers := filepath.Join("usr/src", "linux-headers-"+release)
	common := filepath.Join("usr/src", "linux-headers-"+strings.TrimSuffix(release, arch)+"common")
	line := "include " + filepath.Join(root, common, "Makefile") + "\n"
	if err := os.WriteFile(filepath.Join(unpacked, headers, "Makefile"), []byte(line), 0o644); err != nil {
		return err
	}
	return place(unpacked, root)
}

// place marks the folder made as complete and moves it to the path at, in place of what is there.
func place(made, at string) error {
	if err := os.WriteFile(filepath.Join(made, completeMark), nil, 0o644); err != nil {
		return err
	}
	if err := os.RemoveAll(at); err != nil {
		return err
	}
	return os.Rename(made, at)
}

// needTools looks for programs (or files, by absolute path). If any are missing, it returns an error that wraps
// ErrMissing and names their Debian packages.
func needTools(packageOf map[string]string) error {
	var missing, packages []string
	for tool, pkg := range packageOf {
		_, err := exec.LookPath(tool)
		if filepath.IsAbs(tool) {
			_, err = os.Stat(tool)
		}
		if err != nil {
			missing, packages = append(missing, tool), append(packages, pkg)
		}
	}
	if missing == nil {
		return nil
	}
	sort.Strings(missing)
	sort.Strings(packages)
	return fmt.Errorf("%w: %s: apt-get install --no-install-recommends %s", ErrMissing,
		strings.Join(missing, ", "), strings.Join(packages, " "))
}
