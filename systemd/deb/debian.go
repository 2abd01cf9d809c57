// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// pinned is a package of Debian in a version, which is part of the image.
type pinned struct {
	name, version, pool, licence string
	sums                         map[string]string // SHA-256 by Debian's name of the architecture
}

// pins are the packages of Debian 13 in the image: the C library with which the program and NVIDIA's libraries are
// linked, the library of C++ that NVIDIA's and codecs use, the authorities that certify servers, and the folders of a
// Debian. The C library is newer than that of JetPack 7 (2.39), whose libraries NVIDIA's runtime mounts. The files
// Packages of Debian have newer versions, and their sums.
var pins = []pinned{
	{"base-files", "13.8+deb13u8", "pool/main/b/base-files", "GPL-2.0-or-later", map[string]string{
		"amd64": "f5a0546098f38bad5843380521781fe7214e5a283d3bed63f79c505545f262af",
		"arm64": "893616b7ce203a05a0528652f7d754cc5e3de7e8eff3b396f95383a5b8b1c668",
	}},
	{"ca-certificates", "20250419+deb13u1", "pool/main/c/ca-certificates", "GPL-2.0-or-later AND MPL-2.0", map[string]string{
		"all": "c10585ac22c7f617a73d394eea29ba71d0356f350ae973b19043d1b017f80f54",
	}},
	{"libc6", "2.41-12+deb13u5", "pool/main/g/glibc", "LGPL-2.1-or-later", map[string]string{
		"amd64": "b59b0625cd1a791375d40dab23a4d5d3d0641e3d0a773501becdc3725b7f99cf",
		"arm64": "0966fc3da1a26cc57647c68b5736f791b6e7eb498173a7993f63b6c89b4ed4f5",
	}},
	{"libgcc-s1", "14.2.0-19", "pool/main/g/gcc-14", "GPL-3.0-or-later WITH GCC-exception-3.1", map[string]string{
		"amd64": "3c71917b490d1a17aed43196a2787a256ecf060526cdb20216a74bedc061b150",
		"arm64": "1108bc87879833d6d9a145f22a4a15cddb34e065b4b5f4b97bee586adbac2851",
	}},
	{"libstdc++6", "14.2.0-19", "pool/main/g/gcc-14", "GPL-3.0-or-later WITH GCC-exception-3.1", map[string]string{
		"amd64": "ab1fa05837aa7a92aae748fd07a18a35f7d18bb4a71c4724fe2bbf0e32089de0",
		"arm64": "6669b0c52a2e7c6af9adfdabce3ff6e286065cdfbc7b85280862b5f799daebee",
	}},
}

// mirrors have the packages. The first one removes a version when there is a newer one, the second one keeps all.
var mirrors = []string{"http://deb.debian.org/debian", "https://snapshot.debian.org/archive/debian/20261129T000000Z"}

// file returns the path of the package's file in a mirror, and its SHA-256.
func (p pinned) file(arch string) (name, sum string) {
	if sum, ok := p.sums["all"]; ok {
		return path.Join(p.pool, p.name+"_"+p.version+"_all.deb"), sum
	}
	return path.Join(p.pool, p.name+"_"+p.version+"_"+arch+".deb"), p.sums[arch]
}

// pinFolder returns the folder in the user's cache that has the packages.
func pinFolder() (string, error) {
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "tegracast", "debian"), err
}

// errSum means that a mirror has another file than the pinned one.
var errSum = errors.New("the file does not have the SHA-256 of debian.go")

// fetch returns the path of the package in a folder. If it is not there, or is not what is pinned, fetch takes it from
// the first mirror that has it.
func (p pinned) fetch(folder, arch string, mirrors []string) (string, error) {
	name, want := p.file(arch)
	to := filepath.Join(folder, path.Base(name))
	text, err := os.ReadFile(to)
	if err == nil && fmt.Sprintf("%x", sha256.Sum256(text)) == want {
		return to, nil
	}
	var failed error
	for _, mirror := range mirrors {
		text, err := get(mirror + "/" + name)
		if err == nil && fmt.Sprintf("%x", sha256.Sum256(text)) != want {
			err = fmt.Errorf("%w: %s/%s", errSum, mirror, name)
		}
		if err == nil {
			return to, errors.Join(os.MkdirAll(folder, 0o755), replace(to, text))
		}
		failed = errors.Join(failed, err)
	}
	return "", fmt.Errorf("the image needs %s, which no mirror has: %w", to, failed)
}

// get returns the file at an address.
func get(address string) ([]byte, error) {
	client := http.Client{Timeout: 2 * time.Minute}
	r, err := client.Get(address)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", address, r.Status)
	}
	return io.ReadAll(io.LimitReader(r.Body, 64<<20)) // more than any of them has
}

// replace writes a file that other processes never see in part.
func replace(name string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name))
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// unneeded matches files of packages that nothing in the image reads.
var unneeded = regexp.MustCompile(`^\./usr/(lib/[^/]+/gconv|lib/locale|share/(gcc|gdb|lintian|locale))/`)

// debian returns the lower layer of the image for an architecture: the files of the pinned packages, the records by
// which scanners find them, the bundle of certificates, and what ldconfig of NVIDIA's runtime needs.
func (p *packer) debian(arch string) ([]byte, error) {
	folder, err := pinFolder()
	if err != nil {
		return nil, err
	}
	layer, has := newArchive(time.Time{}), map[string]bool{} // files that are added are as old as those of the packages
	var bundle bytes.Buffer
	for _, pin := range pins {
		deb, err := pin.fetch(folder, arch, mirrors)
		if err != nil {
			return nil, err
		}
		record, err := output(p.root, "dpkg-deb", "--field", deb)
		if err != nil {
			return nil, err
		}
		files, err := exec.Command("dpkg-deb", "--fsys-tarfile", deb).Output()
		if err != nil {
			return nil, fmt.Errorf("dpkg-deb --fsys-tarfile %s: %w", deb, err)
		}
		for r := tar.NewReader(bytes.NewReader(files)); ; {
			h, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", deb, err)
			}
			if has[h.Name] || unneeded.MatchString(h.Name) {
				continue
			}
			text, err := io.ReadAll(r)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", deb, err)
			}
			has[h.Name], layer.made = true, h.ModTime
			if strings.HasSuffix(h.Name, ".crt") {
				bundle.Write(text)
			}
			layer.write(h, text)
		}
		layer.add("./var/lib/dpkg/status.d/"+pin.name, 0o644, []byte(record))
	}
	layer.add("./etc/ssl/certs/ca-certificates.crt", 0o644, bundle.Bytes())
	layer.add("./etc/ld.so.conf", 0o644, []byte("include /etc/ld.so.conf.d/*.conf\n"))
	layer.add("./etc/ld.so.cache", 0o644, nil)
	return layer.bytes()
}
