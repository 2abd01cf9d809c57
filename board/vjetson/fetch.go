package vjetson

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	suite        = "bookworm"
	keyring      = "/usr/share/keyrings/debian-archive-keyring.gpg"
	fetchTimeout = 10 * time.Minute
	completeMark = "complete" // a file beside the unpacked packages, made last
)

// sources are Debian's archives, which apt verifies by the keyring.
var sources = fmt.Sprintf(`deb [signed-by=%[2]s] http://deb.debian.org/debian %[1]s main
deb [signed-by=%[2]s] http://deb.debian.org/debian-security %[1]s-security main
`, suite, keyring)

// Kernel is Debian's kernel with its modules, headers and the programs of a small root, unpacked in the cache.
type Kernel struct {
	Arch    string // Debian's and Go's name: "arm64" or "amd64"
	Release string // uname -r: "6.1.0-56-arm64"
	Dir     string // the unpacked packages
}

// Image is the kernel's file.
func (k Kernel) Image() string { return filepath.Join(k.Dir, "boot", "vmlinuz-"+k.Release) }

// CacheDir is where the machine's packages lie, outside the tree: it may be removed and is made again.
func CacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("vjetson: no cache folder (set HOME or XDG_CACHE_HOME): %w", err)
	}
	return filepath.Join(dir, "tegracast", "vjetson"), nil
}

// Fetch returns the newest kernel in the cache and, when there is none, fetches Debian's with apt-get, which checks
// every package by Debian's keyring. It keeps apt's state of its own and touches no package of this machine. Progress
// goes to log; several processes may call it at once.
func Fetch(ctx context.Context, arch string, log *slog.Logger) (Kernel, error) {
	dir, err := CacheDir()
	if err != nil {
		return Kernel{}, err
	}
	if k, ok := cached(dir, arch); ok {
		return k, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Kernel{}, fmt.Errorf("vjetson: cache: %w", err)
	}
	unlock, err := lock(ctx, filepath.Join(dir, "lock"))
	if err != nil {
		return Kernel{}, err
	}
	defer unlock()
	if k, ok := cached(dir, arch); ok {
		return k, nil // another process was quicker
	}
	if err := needTools(map[string]string{
		"apt-get": "apt", "apt-cache": "apt", "dpkg": "dpkg", keyring: "debian-archive-keyring",
	}); err != nil {
		return Kernel{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, fetchTimeout, fmt.Errorf("fetching took more than %v", fetchTimeout))
	defer cancel()
	return fetch(ctx, dir, arch, log)
}

// cached finds the newest complete kernel.
func cached(dir, arch string) (Kernel, bool) {
	marks, _ := filepath.Glob(filepath.Join(dir, "*-"+arch, completeMark))
	sort.Slice(marks, func(i, j int) bool { return olderRelease(marks[i], marks[j]) })
	if len(marks) == 0 {
		return Kernel{}, false
	}
	root := filepath.Dir(marks[len(marks)-1])
	return Kernel{Arch: arch, Release: filepath.Base(root), Dir: root}, true
}

var digits = regexp.MustCompile(`\d+`)

// olderRelease compares the numbers in two names.
func olderRelease(a, b string) bool {
	x, y := digits.FindAllString(filepath.Base(filepath.Dir(a)), -1), digits.FindAllString(filepath.Base(filepath.Dir(b)), -1)
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return len(x[i]) < len(y[i]) || len(x[i]) == len(y[i]) && x[i] < y[i]
		}
	}
	return len(x) < len(y)
}

// lock waits for the cache's lock.
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

func fetch(ctx context.Context, dir, arch string, log *slog.Logger) (Kernel, error) {
	log.Info("fetching Debian's kernel for the virtual Jetson, once", "arch", arch, "cache", dir)
	a, err := newApt(ctx, dir, arch, log)
	if err != nil {
		return Kernel{}, err
	}
	release, series, err := a.release(ctx)
	if err != nil {
		return Kernel{}, err
	}
	work, err := os.MkdirTemp(dir, "fetch-")
	if err != nil {
		return Kernel{}, fmt.Errorf("vjetson: cache: %w", err)
	}
	defer os.RemoveAll(work)
	if err := a.get(ctx, work, "download", "linux-image-"+release, "linux-headers-"+release,
		"linux-headers-"+strings.TrimSuffix(release, arch)+"common", "linux-kbuild-"+series+":"+runtime.GOARCH,
		"busybox-static", "libc6"); err != nil {
		return Kernel{}, err
	}
	if err := unpack(ctx, work, log); err != nil {
		return Kernel{}, err
	}
	root := filepath.Join(dir, release)
	if err := finish(filepath.Join(work, "root"), root, release, arch); err != nil {
		return Kernel{}, fmt.Errorf("vjetson: cache: %w", err)
	}
	return Kernel{Arch: arch, Release: release, Dir: root}, nil
}

// unpack unpacks every package in work to work/root.
func unpack(ctx context.Context, work string, log *slog.Logger) error {
	debs, _ := filepath.Glob(filepath.Join(work, "*.deb"))
	for _, deb := range debs {
		log.Info("unpacking", "package", filepath.Base(deb))
		c := exec.CommandContext(ctx, "dpkg", "-x", deb, filepath.Join(work, "root"))
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("vjetson: dpkg -x %s: %w: %s", filepath.Base(deb), err, bytes.TrimSpace(out))
		}
	}
	return nil
}

// finish makes the headers find their common part where they lie now, marks the folder and puts it into its place.
func finish(unpacked, root, release, arch string) error {
	headers := filepath.Join("usr/src", "linux-headers-"+release)
	common := filepath.Join("usr/src", "linux-headers-"+strings.TrimSuffix(release, arch)+"common")
	line := "include " + filepath.Join(root, common, "Makefile") + "\n"
	if err := os.WriteFile(filepath.Join(unpacked, headers, "Makefile"), []byte(line), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(unpacked, completeMark), nil, 0o644); err != nil {
		return err
	}
	if err := os.RemoveAll(root); err != nil {
		return err
	}
	return os.Rename(unpacked, root)
}

// needTools looks for programs (or files, by absolute path) and names the Debian packages of those that are missing.
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
