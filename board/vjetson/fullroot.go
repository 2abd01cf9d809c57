// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// fullPackages lists the packages of the full root, without dependencies.
var fullPackages = []string{
	"base-files", "base-passwd", "bash", "coreutils", "dash", "dbus", "diffutils", "dpkg", "findutils", "gpiod", "grep", "gzip",
	"init-system-helpers", "iproute2", "iputils-ping", "kmod", "less", "libc-bin", "mount", "passwd", "perl-base", "procps", "sed", "systemd",
	"systemd-sysv", "udev", "usr-is-merged", "util-linux",
}

// overlay contains the full root's own files.
//
//go:embed all:fullroot
var overlay embed.FS

// fullLinks lists the full root's symbolic links: those that its packages' scripts would make, and those of enabled
// units.
var fullLinks = map[string]string{
	"bin/sh":                            "dash",
	"usr/bin/awk":                       "mawk",
	"etc/mtab":                          "../proc/self/mounts",
	"etc/localtime":                     "/usr/share/zoneinfo/Etc/UTC",
	"etc/systemd/system/default.target": "/lib/systemd/system/multi-user.target",
	"etc/systemd/system/dbus-org.freedesktop.network1.service":            "/lib/systemd/system/systemd-networkd.service",
	"etc/systemd/system/multi-user.target.wants/systemd-networkd.service": "/lib/systemd/system/systemd-networkd.service",
	"etc/systemd/system/sockets.target.wants/systemd-networkd.socket":     "/lib/systemd/system/systemd-networkd.socket",
	"etc/systemd/system/sysinit.target.wants/vjetson-agent.service":       "../vjetson-agent.service",
}

const fullSize = 4 << 30 // bytes of the full root's disk, which is sparse

// fullImage returns the full root for a kernel as an ext4 image in the cache, and creates it if it does not exist.
func fullImage(ctx context.Context, k Kernel, log *slog.Logger) (string, error) {
	recipe, err := fullRecipe()
	if err != nil {
		return "", err
	}
	image := filepath.Join(k.Dir, "full-"+recipe+".ext4")
	if _, err := os.Stat(image); err == nil {
		return image, nil
	}
	if err := needTools(map[string]string{
		"apt-get": "apt", "dpkg-deb": "dpkg", "tar": "tar", "depmod": "kmod", "mke2fs": "e2fsprogs", keyring: "debian-archive-keyring",
	}); err != nil {
		return "", err
	}
	unlock, err := lock(ctx, filepath.Join(filepath.Dir(k.Dir), "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(image); err == nil {
		return image, nil // another process was faster
	}
	ctx, cancel := context.WithTimeoutCause(ctx, fetchTimeout, fmt.Errorf("making the full root took more than %v", fetchTimeout))
	defer cancel()
	return image, makeFull(ctx, k, image, log)
}

// fullRecipe returns a digest of the lists and the files from which the image is made, but not of the packages.
func fullRecipe() (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, fullPackages, fullLinks, fullSize, "with dpkg's database")
	err := fs.WalkDir(overlay, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := overlay.ReadFile(path)
		fmt.Fprintf(h, "%s %d %s", path, len(b), b)
		return err
	})
	return hex.EncodeToString(h.Sum(nil)[:4]), err
}

func makeFull(ctx context.Context, k Kernel, image string, log *slog.Logger) error {
	log.Info("making the virtual Jetson's full root, once", "image", image)
	dir := filepath.Dir(k.Dir)
	work, err := os.MkdirTemp(dir, "full-")
	if err != nil {
		return fmt.Errorf("vjetson: cache: %w", err)
	}
	defer os.RemoveAll(work)
	a, err := newApt(ctx, dir, k.Arch, defaultSeries, log)
	if err != nil {
		return err
	}
	debs, root := filepath.Join(work, "debs"), filepath.Join(work, "root")
	if err := a.downloadWithDependencies(ctx, debs, fullPackages...); err != nil {
		return err
	}
	if err := unpackFull(ctx, debs, root, log); err != nil {
		return err
	}
	if err := configureFull(ctx, k, root); err != nil {
		return err
	}
	log.Info("making the file system")
	made := filepath.Join(work, "image")
	if err := command(ctx, "mke2fs", "-q", "-t", "ext4", "-E", "root_owner=0:0", "-d", root, made, fmt.Sprintf("%dM", fullSize>>20)); err != nil {
		return err
	}
	old, _ := filepath.Glob(filepath.Join(k.Dir, "full-*.ext4"))
	for _, o := range old { // of other recipes
		_ = os.Remove(o)
	}
	if err := os.Rename(made, image); err != nil {
		return fmt.Errorf("vjetson: cache: %w", err)
	}
	return nil
}

// unpackFull unpacks the packages over the links of a merged /usr, without running their scripts, and records them in
// dpkg's database.
func unpackFull(ctx context.Context, debs, root string, log *slog.Logger) error {
	for _, d := range []string{"bin", "sbin", "lib"} {
		if err := os.MkdirAll(filepath.Join(root, "usr", d), 0o755); err != nil {
			return fmt.Errorf("vjetson: cache: %w", err)
		}
		if err := os.Symlink("usr/"+d, filepath.Join(root, d)); err != nil {
			return fmt.Errorf("vjetson: cache: %w", err)
		}
	}
	files, _ := filepath.Glob(filepath.Join(debs, "*.deb"))
	log.Info("unpacking", "packages", len(files))
	line := `set -o pipefail; dpkg-deb --fsys-tarfile "$1" | tar -x --keep-directory-symlink --exclude './usr/share/doc/*' ` +
		`--exclude './usr/share/man/*' --exclude './usr/share/locale/*' -C "$2" && mkdir -p "$2/var/lib/dpkg/info" && ` +
		`{ echo 'Status: install ok installed' && ` +
		`dpkg-deb --field "$1" Package Version Architecture Depends Provides Maintainer Description && echo; } >> "$2/var/lib/dpkg/status"`
	for _, deb := range files {
		if err := command(ctx, "bash", "-c", line, "unpack", deb, root); err != nil {
			return err
		}
	}
	return nil
}

// configureFull adds the overlay, the links and the kernel's modules, and performs the necessary parts of the packages'
// scripts.
func configureFull(ctx context.Context, k Kernel, root string) error {
	files, err := fs.Sub(overlay, "fullroot")
	if err == nil {
		err = os.CopyFS(root, files)
	}
	if err != nil {
		return fmt.Errorf("vjetson: full root: %w", err)
	}
	for link, target := range fullLinks {
		path := filepath.Join(root, link)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("vjetson: full root: %w", err)
		}
		if err := os.Symlink(target, path); err != nil && !os.IsExist(err) {
			return fmt.Errorf("vjetson: full root: %w", err)
		}
	}
	line := `cd "$1" && cp usr/share/base-passwd/passwd.master etc/passwd && cp usr/share/base-passwd/group.master etc/group &&
		cp usr/share/base-files/profile etc/profile && cp usr/share/base-files/dot.bashrc root/.bashrc &&
		cp usr/share/base-files/dot.profile root/.profile &&
		mkdir -p var/log/journal usr/lib/modules && cp -a --reflink=auto "$2/lib/modules/$3" usr/lib/modules/ &&
		depmod -b "$1" "$3" && touch etc/.updated var/.updated`
	return command(ctx, "sh", "-c", line, "configure", root, k.Dir, k.Release)
}

// command runs a program of this host. An error contains its output.
func command(ctx context.Context, argv ...string) error {
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("vjetson: %s: %w: %s", strings.Join(argv[:1], " "), err, bytes.TrimSpace(out))
	}
	return nil
}
