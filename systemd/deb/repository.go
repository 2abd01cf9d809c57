// SPDX-License-Identifier: Apache-2.0

package main

import (
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// readme explains how to use the repository, and its limitations.
const readme = `Debian packages of tegracast %s, as a repository that apt uses without a network.

The repository is not signed. Compare the checksums in ../SHA256SUMS with those that
the project has published, copy this folder to the machine, and write the line

  deb [trusted=yes] file:/FOLDER ./

with this folder's path into /etc/apt/sources.list.d/tegracast.list. Then, as root:

  apt-get update
  apt-get install tegracast tegracast-dkms

Several versions may lie in one folder: copy their packages together, and run
dpkg-scanpackages --multiversion . > Packages (package dpkg-dev); remove Packages.gz
and Release.
`

// writeRepository turns a folder of packages into a flat repository for apt (sources.list(5), apt-ftparchive(1)).
func writeRepository(dir string, id identity) error {
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return err
	}
	var list strings.Builder
	archs := map[string]bool{}
	for _, deb := range debs {
		control, err := output(dir, "dpkg-deb", "--field", deb)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(deb)
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "%s\nFilename: ./%s\nSize: %d\nSHA256: %x\n\n", strings.TrimRight(control, "\n"), filepath.Base(deb), len(text), sha256.Sum256(text))
		archs[architecture(deb)] = true
	}
	packed, err := zipped([]byte(list.String()), gzip.DefaultCompression)
	if err != nil {
		return err
	}
	files := map[string]string{"Packages": list.String(), "Packages.gz": string(packed)}
	var head strings.Builder
	head.WriteString("Origin: tegracast\nLabel: tegracast\nSuite: stable\n")
	fmt.Fprintf(&head, "Version: %s\nDate: %s\n", id.version, id.made.Format("Mon, 02 Jan 2006 15:04:05 UTC"))
	fmt.Fprintf(&head, "Architectures: %s\n", strings.Join(sorted(archs), " "))
	head.WriteString("Description: packages of tegracast, not signed\nSHA256:\n")
	for _, name := range sorted(files) {
		fmt.Fprintf(&head, " %x %d %s\n", sha256.Sum256([]byte(files[name])), len(files[name]), name)
	}
	files["Release"], files["README"] = head.String(), fmt.Sprintf(readme, id.version)
	for name, text := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return err
}

// architecture returns the architecture in the name of a package's file, NAME_VERSION_ARCH.deb.
func architecture(deb string) string {
	return strings.TrimSuffix(deb[strings.LastIndex(deb, "_")+1:], ".deb")
}

// sorted returns the keys of a map in order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
