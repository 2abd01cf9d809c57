// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/u-root/mkuimage/cpio"
	"golang.org/x/sys/unix"
)

// buildAgent compiles the program that runs in the machine into dir, and returns its path.
func buildAgent(ctx context.Context, arch, dir string) (string, error) {
	out := filepath.Join(dir, "agent")
	c := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", out, "github.com/tegracast/tegracast/board/vjetson/agent")
	c.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0", "GOFLAGS=")
	if b, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("vjetson: building the agent: %w: %s", err, bytes.TrimSpace(b))
	}
	return out, nil
}

// smallRoot builds the initramfs: the agent as PID 1, busybox, the C library, modules, and the caller's files. It returns
// a memory file that the caller must close.
func smallRoot(ctx context.Context, cfg Config) (*os.File, error) {
	dir, err := os.MkdirTemp("", "vjetson-")
	if err != nil {
		return nil, fmt.Errorf("vjetson: %w", err)
	}
	defer os.RemoveAll(dir)
	agent, err := buildAgent(ctx, cfg.Kernel.Arch, dir)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("vjetson-initramfs", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("vjetson: initramfs: %w", err)
	}
	f := os.NewFile(uintptr(fd), "initramfs")
	if err := fillRoot(f, cfg, agent); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func fillRoot(w io.Writer, cfg Config, agent string) error {
	c := newArchive(w)
	for _, d := range []string{"/bin", "/dev", "/etc", "/lib", "/proc", "/root", "/run", "/sys", "/tmp"} {
		c.add(cpio.Directory(d, 0o755))
	}
	c.add(cpio.CharDev("/dev/console", 0o600, 5, 1))
	k := cfg.Kernel
	files := map[string]string{"/init": agent, "/bin/busybox": filepath.Join(k.Dir, "bin/busybox")}
	for _, pattern := range []string{"lib/ld-linux*", "lib64/ld-linux*", "lib/*/ld-linux*", "lib/*/lib[cm].so.6", "lib/*/libdl.so.2", "lib/*/libpthread.so.0"} {
		found, _ := filepath.Glob(filepath.Join(k.Dir, pattern))
		for _, path := range found {
			files[strings.TrimPrefix(path, k.Dir)] = path
		}
	}
	for to, from := range cfg.Files {
		if cfg.Full {
			to = path.Join("/files", to)
		}
		files[to] = from
	}
	if cfg.Full {
		c.add(cpio.Directory("/newroot", 0o755))
		c.add(cpio.Directory("/files", 0o755))
	}
	names := make([]string, 0, len(files))
	for to := range files {
		names = append(names, to)
	}
	slices.Sort(names)
	for _, to := range names {
		addFile(c, to, files[to])
	}
	if err := addModules(c, cfg); err != nil {
		return err
	}
	return c.close()
}

// addModules adds the modules, and the list from which the agent loads them.
func addModules(c *archive, cfg Config) error {
	all, err := cfg.Kernel.modules()
	if err != nil {
		return err
	}
	names := []string{"virtio_pci"}
	if len(cfg.Functions) > 0 && cfg.arch.virtioIOMMU {
		names = append(names, virtioIOMMU)
		if cfg.iommuModule != "" {
			all[virtioIOMMU] = cfg.iommuModule
		}
	}
	names = append(append(names, "virtio_console"), cfg.Modules...) // the console is the agent's port
	if cfg.Network {
		names = append(names, "virtio_net")
	}
	if cfg.Disk != "" || cfg.Full {
		names = append(names, "virtio_blk", "crc32c_generic", "ext4")
	}
	order, err := all.order(names...)
	if err != nil {
		return err
	}
	var list strings.Builder
	for _, from := range order {
		to := "/lib/modules/" + filepath.Base(from)
		addFile(c, to, from)
		list.WriteString(to + "\n")
	}
	c.add(cpio.StaticFile("/modules", list.String(), 0o644))
	return nil
}

// addFile adds the host's file at path from to the archive, at path to, with its permission bits. A relative link is
// added as a link, an absolute one is followed.
func addFile(c *archive, to, from string) {
	if c.err != nil {
		return
	}
	if target, err := os.Readlink(from); err == nil && !filepath.IsAbs(target) {
		c.add(cpio.Symlink(to, target))
		return
	}
	f, err := os.Open(from)
	if err != nil {
		c.err = fmt.Errorf("%w: file for the machine's %s: %w", ErrMissing, to, err)
		return
	}
	defer f.Close()
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", from)
	}
	if err != nil {
		c.err = fmt.Errorf("vjetson: file for the machine's %s: %w", to, err)
		return
	}
	c.add(cpio.Record{ReaderAt: f, Info: cpio.Info{Name: to, Mode: cpio.S_IFREG | uint64(st.Mode().Perm()), FileSize: uint64(st.Size())}})
}
