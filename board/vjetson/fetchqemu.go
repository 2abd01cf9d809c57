// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// qemuSuites are the suites that provide a QEMU that supports vfio-user, and its dependencies.
var qemuSuites = []string{"trixie", "trixie-security", qemuSuite}

const qemuSuite = "trixie-backports"

// oldestQEMU is the first version with vfio-user-pci.
const oldestQEMU = "10.1"

// QEMU is a QEMU that supports vfio-user, with all its dependencies, unpacked in the cache.
type QEMU struct {
	Version string // version of Debian's package without the epoch, such as "11.1.3+ds-1~bpo13+1"
	Dir     string // its folder in the cache
}

// FetchQEMU returns the newest QEMU in the cache that supports vfio-user. If there is none, it fetches the newest one
// for Debian's stable release, as FetchSeries does. Its error wraps ErrUnreachable if the archive cannot be reached.
func FetchQEMU(ctx context.Context, log *slog.Logger) (QEMU, error) {
	return once(ctx, cachedQEMU, func(ctx context.Context, dir string) (QEMU, error) {
		return fetchQEMU(ctx, dir, log)
	})
}

const qemuPrefix = "qemu-" // prefix of the folder's name, before the version

func cachedQEMU(dir string) (QEMU, bool) {
	root, ok := newest(dir, qemuPrefix+"*")
	return QEMU{Version: strings.TrimPrefix(filepath.Base(root), qemuPrefix), Dir: root}, ok
}

func fetchQEMU(ctx context.Context, dir string, log *slog.Logger) (QEMU, error) {
	log.Info("fetching a newer QEMU for the virtual Jetson, once", "cache", dir)
	a := apt{state: filepath.Join(dir, "apt-qemu"), arch: runtime.GOARCH, suites: qemuSuites, prefer: qemuSuite, log: log}
	if err := a.update(ctx); err != nil {
		return QEMU{}, err
	}
	work, err := os.MkdirTemp(dir, "fetch-")
	if err != nil {
		return QEMU{}, fmt.Errorf("vjetson: cache: %w", err)
	}
	defer os.RemoveAll(work)
	var packages []string
	for _, m := range arches {
		packages = append(packages, m.qemuPackage)
	}
	if err := a.downloadWithDependencies(ctx, work, packages...); err != nil {
		return QEMU{}, err
	}
	version, err := qemuVersion(work)
	if err != nil {
		return QEMU{}, err
	}
	unpacked := filepath.Join(work, "root")
	if err := unpack(ctx, work, unpacked, log); err != nil {
		return QEMU{}, err
	}
	q := QEMU{Version: version, Dir: filepath.Join(dir, qemuPrefix+version)}
	if err := q.place(unpacked, filepath.Join(work, "kept")); err != nil {
		return QEMU{}, fmt.Errorf("vjetson: cache: %w", err)
	}
	return q, nil
}

// qemuVersion returns the version from the names of the fetched packages, where %3a stands for a colon. It returns an
// error if that is older than oldestQEMU.
func qemuVersion(debs string) (string, error) {
	names, _ := filepath.Glob(filepath.Join(debs, arches[0].qemuPackage+"_*.deb"))
	if len(names) != 1 {
		return "", fmt.Errorf("vjetson: apt-get has fetched %d packages %s, want 1", len(names), arches[0].qemuPackage)
	}
	version := strings.Split(filepath.Base(names[0]), "_")[1]
	if _, v, epoch := strings.Cut(version, "%3a"); epoch {
		version = v
	}
	if compareReleases(version, oldestQEMU) < 0 {
		return "", fmt.Errorf("vjetson: Debian's QEMU is %s, which does not know vfio-user: %s does", version, oldestQEMU)
	}
	return version, nil
}

// place moves what is needed to run into place: programs, libraries and firmware, without documentation.
func (q QEMU) place(unpacked, kept string) error {
	parts := []string{"usr/lib", "usr/share/qemu", "usr/share/seabios"}
	for _, a := range arches {
		parts = append(parts, filepath.Join("usr/bin", a.qemu))
	}
	for _, p := range parts {
		to := filepath.Join(kept, p)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.Rename(filepath.Join(unpacked, p), to)); err != nil {
			return err
		}
	}
	return place(kept, q.Dir)
}

// command returns a command that runs the program with its own dynamic linker, libraries and firmware.
func (q QEMU) command(program string) ([]string, error) {
	line, err := loader(q.Dir)
	if err != nil {
		return nil, fmt.Errorf("%w: QEMU's %w", ErrMissing, err)
	}
	share := filepath.Join(q.Dir, "usr/share")
	return append(line, filepath.Join(q.Dir, "usr/bin", program), "-L", filepath.Join(share, "qemu"), "-L", filepath.Join(share, "seabios")), nil
}
