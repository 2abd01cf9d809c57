// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
)

// UCX is a Debian release of UCX with all its dependencies, unpacked in the cache.
type UCX struct{ Dir string }

// FetchUCX returns the UCX of a suite for an architecture. If it is not in the cache, FetchUCX fetches it as
// FetchSeries does. Its error wraps ErrUnreachable if the archive cannot be reached.
func FetchUCX(ctx context.Context, arch, suite string, log *slog.Logger) (UCX, error) {
	name := "ucx-" + suite + "-" + arch
	find := func(dir string) (UCX, bool) {
		at := filepath.Join(dir, name)
		_, err := os.Stat(filepath.Join(at, completeMark))
		return UCX{at}, err == nil
	}
	return once(ctx, find, func(ctx context.Context, dir string) (UCX, error) {
		log.Info("fetching UCX, once", "suite", suite, "cache", dir)
		a := apt{state: filepath.Join(dir, "apt-"+name), arch: arch, suites: []string{suite, suite + "-security"}, log: log}
		if err := a.update(ctx); err != nil {
			return UCX{}, err
		}
		work, err := os.MkdirTemp(dir, "fetch-")
		if err != nil {
			return UCX{}, fmt.Errorf("vjetson: cache: %w", err)
		}
		defer os.RemoveAll(work)
		unpacked, at := filepath.Join(work, "root"), filepath.Join(dir, name)
		if err := a.downloadWithDependencies(ctx, work, "libucx0"); err != nil {
			return UCX{}, err
		}
		if err := unpack(ctx, work, unpacked, log); err != nil {
			return UCX{}, err
		}
		if err := place(unpacked, at); err != nil {
			return UCX{}, fmt.Errorf("vjetson: cache: %w", err)
		}
		return UCX{at}, nil
	})
}

// Command returns a command that runs a program with this UCX and its C library, on a machine of its architecture.
func (u UCX) Command(program string, args ...string) ([]string, error) {
	loader, err := loader(u.Dir)
	if err != nil {
		return nil, fmt.Errorf("%w: UCX's %w", ErrMissing, err)
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
