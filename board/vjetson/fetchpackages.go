// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
)

// Packages are packages of a release of Debian with all their dependencies, unpacked in the cache.
type Packages struct{ Dir string }

// FetchPackages returns packages of a suite for an architecture. If they are not in the cache, under the first one's
// name, FetchPackages fetches them as FetchSeries does. Its error wraps ErrUnreachable if the archive cannot be reached.
func FetchPackages(ctx context.Context, arch, suite string, log *slog.Logger, packages ...string) (Packages, error) {
	name := packages[0] + "-" + suite + "-" + arch
	find := func(dir string) (Packages, bool) {
		at := filepath.Join(dir, name)
		_, err := os.Stat(filepath.Join(at, completeMark))
		return Packages{at}, err == nil
	}
	return once(ctx, find, func(ctx context.Context, dir string) (Packages, error) {
		log.Info("fetching packages, once", "packages", packages, "suite", suite, "cache", dir)
		a := apt{state: filepath.Join(dir, "apt-"+name), arch: arch, suites: []string{suite, suite + "-security"}, log: log}
		if err := a.update(ctx); err != nil {
			return Packages{}, err
		}
		work, err := os.MkdirTemp(dir, "fetch-")
		if err != nil {
			return Packages{}, fmt.Errorf("vjetson: cache: %w", err)
		}
		defer os.RemoveAll(work)
		unpacked, at := filepath.Join(work, "root"), filepath.Join(dir, name)
		if err := a.downloadWithDependencies(ctx, work, packages...); err != nil {
			return Packages{}, err
		}
		if err := unpack(ctx, work, unpacked, log); err != nil {
			return Packages{}, err
		}
		if err := place(unpacked, at); err != nil {
			return Packages{}, fmt.Errorf("vjetson: cache: %w", err)
		}
		return Packages{at}, nil
	})
}

// Command returns a command that runs a program with these libraries and their C library, on a machine of their
// architecture.
func (p Packages) Command(program string, args ...string) ([]string, error) {
	loader, err := loader(p.Dir)
	if err != nil {
		return nil, fmt.Errorf("%w: the packages' %w", ErrMissing, err)
	}
	return append(append(loader, program), args...), nil
}

// loader returns the start of a command that runs a program with the dynamic linker and the libraries of an unpacked
// root.
func loader(root string) ([]string, error) {
	linkers, _ := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu/ld-linux-*.so.*"))
	if len(linkers) != 1 {
		return nil, fmt.Errorf("dynamic linker in %s (remove the folder to fetch it again)", root)
	}
	return []string{linkers[0], "--library-path", filepath.Dir(linkers[0])}, nil
}
