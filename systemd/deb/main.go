// SPDX-License-Identifier: Apache-2.0

// Command deb makes tegracast's Debian packages: tegracast for arm64 and amd64, and tegracast-dkms. With --release it
// makes a release: the packages as a repository for apt, archives with the program, container images, and lists of the
// modules and packages that they were built from. The same commit gives the same bytes. It is a separate module, so that
// the program does not depend on packaging libraries.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	root := flag.String("root", ".", "the repository's `folder`")
	out := flag.String("out", "bin", "`folder` for what is made")
	version := flag.String("version", "", "of the packages; default: what systemd/version says")
	archs := flag.String("arch", "arm64,amd64", "architectures, with commas")
	release := flag.Bool("release", false, "make a release")
	flag.Parse()
	if err := run(*root, *out, *version, strings.Split(*archs, ","), *release); err != nil {
		fmt.Fprintln(os.Stderr, "deb:", err)
		os.Exit(1)
	}
}

func run(root, out, version string, archs []string, release bool) (err error) {
	if root, err = filepath.Abs(root); err != nil {
		return err
	}
	if out, err = filepath.Abs(out); err != nil {
		return err
	}
	build, err := os.MkdirTemp("", "tegracast-deb-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(build)) }()
	p := &packer{root: root, build: build, out: out, archs: archs}
	if p.id, err = identify(root, version); err != nil {
		return err
	}
	if release {
		return p.release()
	}
	return p.packages()
}
