// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// modules maps the names of the kernel's modules to their files, or "" for built-in ones.
type modules map[string]string

// modules lists the modules in the kernel's package. Names have underscores, as printed by modinfo and lsmod.
func (k Kernel) modules() (modules, error) {
	m := make(modules)
	dir := filepath.Join(k.Dir, "lib/modules", k.Release)
	builtin, err := os.ReadFile(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		return nil, fmt.Errorf("%w: list of the modules that are built in: %w", ErrMissing, err)
	}
	for line := range strings.Lines(string(builtin)) {
		m[moduleName(strings.TrimSpace(line))] = ""
	}
	err = filepath.WalkDir(filepath.Join(dir, "kernel"), func(path string, e fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".ko") {
			m[moduleName(path)] = path
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("vjetson: modules: %w", err)
	}
	return m, nil
}

func moduleName(path string) string {
	return strings.ReplaceAll(strings.TrimSuffix(filepath.Base(path), ".ko"), "-", "_")
}

// order returns the files to load for the named modules, each after its dependencies.
func (m modules) order(names ...string) ([]string, error) {
	var files []string
	done := make(map[string]bool)
	var add func(name string) error
	add = func(name string) error {
		if done[name] {
			return nil
		}
		done[name] = true
		path, ok := m[name]
		if !ok {
			return fmt.Errorf("vjetson: the kernel has no module %s", name)
		}
		if path == "" {
			return nil
		}
		deps, err := dependencies(path)
		if err != nil {
			return err
		}
		for _, d := range deps {
			if err := add(d); err != nil {
				return fmt.Errorf("%w (needed by %s)", err, name)
			}
		}
		files = append(files, path)
		return nil
	}
	for _, n := range names {
		if err := add(n); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// dependencies returns the names of the modules that a module needs, from "depends=a,b" in its .modinfo section.
func dependencies(path string) ([]string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("vjetson: module %s: %w", path, err)
	}
	defer f.Close()
	info := f.Section(".modinfo")
	if info == nil {
		return nil, fmt.Errorf("vjetson: %s is no kernel module: it has no .modinfo", path)
	}
	b, err := info.Data()
	if err != nil {
		return nil, fmt.Errorf("vjetson: module %s: %w", path, err)
	}
	for entry := range bytes.SplitSeq(b, []byte{0}) {
		if list, ok := strings.CutPrefix(string(entry), "depends="); ok && list != "" {
			return strings.Split(strings.ReplaceAll(list, "-", "_"), ","), nil
		}
	}
	return nil, nil
}
