// SPDX-License-Identifier: Apache-2.0

package main

import (
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// release makes all files of a release: packages in a repository for apt, and for each architecture an archive with the
// program, a container image, and a list of what both were built from. SHA256SUMS has the checksums of all.
func (p *packer) release() error {
	if left, err := os.ReadDir(p.out); err == nil && len(left) > 0 {
		return fmt.Errorf("%s is not empty: a release is made in a folder of its own, remove it first", p.out)
	}
	repository := *p
	repository.out = filepath.Join(p.out, "apt")
	if err := repository.packages(); err != nil {
		return err
	}
	if err := writeRepository(repository.out, p.id); err != nil {
		return err
	}
	for _, arch := range p.archs {
		if err := errors.Join(p.archive(arch), p.image(arch), p.bill(arch)); err != nil {
			return err
		}
	}
	return writeSums(p.out)
}

// title returns the base name of a release's files for an architecture.
func (p *packer) title(arch string) string {
	return fmt.Sprintf("tegracast_%s_linux_%s", p.id.version, arch)
}

// archive writes an archive with the program and its files, for systems without dpkg.
func (p *packer) archive(arch string) error {
	files := map[string]string{ // by name in the archive, in one folder
		"tegracast":            p.programFor(arch),
		"LICENSE":              filepath.Join(p.root, "LICENSE"),
		"CHANGELOG.md":         filepath.Join(p.root, "CHANGELOG.md"),
		"copyright":            filepath.Join(p.root, "systemd/deb/tegracast.copyright"),
		"tegracast.service":    filepath.Join(p.root, "systemd/tegracast.service"),
		"operations.md":        filepath.Join(p.root, "docs/operations.md"),
		"completions/bash":     filepath.Join(p.build, "bash"),
		"completions/zsh":      filepath.Join(p.build, "zsh"),
		"completions/fish":     filepath.Join(p.build, "fish"),
		"man/tegracast.1":      filepath.Join(p.build, "tegracast.1"),
		"schema.json":          filepath.Join(p.build, "schema.json"),
		"tegracast.yaml":       filepath.Join(p.build, "tegracast.yaml"),
		"man/tegracast.yaml.5": filepath.Join(p.build, "tegracast.yaml.5"),
	}
	a := newArchive(p.id.made)
	for _, name := range sorted(files) {
		text, err := os.ReadFile(files[name])
		if err != nil {
			return err
		}
		mode := int64(0o644)
		if name == "tegracast" {
			mode = 0o755
		}
		a.add(p.title(arch)+"/"+name, mode, text)
	}
	text, err := a.bytes()
	if err != nil {
		return err
	}
	packed, err := zipped(text, gzip.DefaultCompression)
	if err != nil {
		return err
	}
	return p.publish(p.title(arch)+".tar.gz", packed)
}

// publish writes a file of the release.
func (p *packer) publish(name string, text []byte) error {
	name = filepath.Join(p.out, name)
	if err := os.WriteFile(name, text, 0o644); err != nil {
		return err
	}
	fmt.Println(name)
	return nil
}

// writeSums writes SHA256SUMS, for sha256sum --check, with every file below a folder.
func writeSums(dir string) error {
	var sums strings.Builder
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(text), name)
		return err
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(sums.String()), 0o644)
}
