// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

//go:embed sanitized.config
var sanitizedConfig []byte

// buildKernelTimeout is the time limit for building a kernel. It suffices for a machine with two slow cores.
const buildKernelTimeout = 90 * time.Minute

// Sanitized returns a kernel built from Debian's source with checks: KASAN, lockdep, the DMA API's debugging, kmemleak,
// and the check for sleeping in the wrong place. It is built once, with this host's compiler for arm64. That takes a
// quarter of an hour on two cores, and 4 GB of the cache. Progress goes to log. The kernel supports the small root, edu
// and the card, but neither network nor disk.
func Sanitized(ctx context.Context, log *slog.Logger) (Kernel, error) {
	stock, err := Fetch(ctx, "arm64", log)
	if err != nil {
		return Kernel{}, err
	}
	digest := sha256.Sum256(sanitizedConfig)
	cache := filepath.Dir(stock.Dir)
	root := filepath.Join(cache, "sanitized-"+hex.EncodeToString(digest[:4]))
	if k, err := sanitizedIn(root); err == nil {
		return k, nil
	}
	a := &arches[0]
	gcc, pkg := a.compiler()
	if err := needTools(map[string]string{
		"make": "make", gcc: pkg, "flex": "flex", "bison": "bison", "bc": "bc", "xz": "xz-utils", "gcc": "gcc",
		"/usr/include/openssl/opensslv.h": "libssl-dev",
	}); err != nil {
		return Kernel{}, err
	}
	unlock, err := lock(ctx, filepath.Join(cache, "lock-sanitized"))
	if err != nil {
		return Kernel{}, err
	}
	defer unlock()
	if k, err := sanitizedIn(root); err == nil {
		return k, nil // another process was faster
	}
	ctx, cancel := context.WithTimeoutCause(ctx, buildKernelTimeout, fmt.Errorf("building the kernel took more than %v", buildKernelTimeout))
	defer cancel()
	if err := buildSanitized(ctx, stock, root, log); err != nil {
		return Kernel{}, errors.Join(err, os.RemoveAll(root))
	}
	return sanitizedIn(root)
}

// sanitizedIn returns the kernel that buildSanitized has built in root, or an error if it is not complete.
func sanitizedIn(root string) (Kernel, error) {
	release, err := os.ReadFile(filepath.Join(root, completeMark))
	return Kernel{Arch: "arm64", Release: string(release), Dir: root}, err
}

func buildSanitized(ctx context.Context, stock Kernel, root string, log *slog.Logger) error {
	if err := errors.Join(os.RemoveAll(root), os.MkdirAll(root, 0o755)); err != nil {
		return fmt.Errorf("vjetson: cache: %w", err)
	}
	source, err := fetchSource(ctx, stock, root, log)
	if err != nil {
		return err
	}
	config := filepath.Join(root, "sanitized.config")
	if err := os.WriteFile(config, sanitizedConfig, 0o644); err != nil {
		return fmt.Errorf("vjetson: cache: %w", err)
	}
	build := func(args ...string) error {
		return command(ctx, slices.Concat([]string{"make", "-s", "-j2", "-C", source}, arches[0].makeArguments(), args)...)
	}
	if err := build("allnoconfig", "KCONFIG_ALLCONFIG="+config); err != nil {
		return err
	}
	log.Info("building the instrumented kernel, once: a quarter of an hour on two cores")
	if err := build("Image", "modules"); err != nil {
		return err
	}
	if err := build("modules_install", "INSTALL_MOD_PATH="+root, "DEPMOD=true"); err != nil {
		return err
	}
	b, err := os.ReadFile(filepath.Join(source, "include/config/kernel.release"))
	if err != nil {
		return fmt.Errorf("vjetson: kernel: %w", err)
	}
	return placeSanitized(ctx, stock, root, source, strings.TrimSpace(string(b)))
}

// fetchSource unpacks Debian's linux-source of a kernel's series into root, and returns its path. It unpacks only the
// named folders, or everything if none are named.
func fetchSource(ctx context.Context, k Kernel, root string, log *slog.Logger, folders ...string) (string, error) {
	series := strings.Join(strings.SplitN(k.Release, ".", 3)[:2], ".")
	a, err := newApt(ctx, filepath.Dir(k.Dir), k.Arch, series, log)
	if err != nil {
		return "", err
	}
	name := "linux-source-" + series
	if err := a.get(ctx, root, "download", name); err != nil {
		return "", err
	}
	log.Info("unpacking the kernel's source")
	line := `set -eo pipefail; cd "$1"; ` +
		`dpkg-deb --fsys-tarfile linux-source-*.deb | tar -xO --wildcards './usr/src/linux-source-*.tar.xz' | tar -xJ "${@:2}"; rm linux-source-*.deb`
	argv := []string{"bash", "-c", line, "unpack", root}
	for _, f := range folders {
		argv = append(argv, name+"/"+f)
	}
	if err := command(ctx, argv...); err != nil {
		return "", err
	}
	return filepath.Join(root, name), nil
}

// placeSanitized arranges the files of the built kernel in root as Debian's packages do, adds BusyBox and its libraries
// from the stock kernel's folder, and marks root as complete.
func placeSanitized(ctx context.Context, stock Kernel, root, source, release string) error {
	headers := filepath.Join(root, "usr/src/linux-headers-"+release)
	for _, d := range []string{"boot", "usr/src", "bin", "lib"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return fmt.Errorf("vjetson: cache: %w", err)
		}
	}
	line := `set -e; cp "$1/arch/arm64/boot/Image" "$2/boot/vmlinuz-$3"; mv "$1" "$4"; cp "$5/bin/busybox" "$2/bin/"
		cd "$5/lib"; for f in ld-linux* */ld-linux* */lib[cm].so.6 */libdl.so.2 */libpthread.so.0; do
			[ -e "$f" ] || continue; mkdir -p "$2/lib/$(dirname "$f")"; cp -a "$f" "$2/lib/$f"; done
		find "$4" -name '*.o' -not -path '*/scripts/*' -not -path '*/tools/*' -delete; rm -f "$4/vmlinux"`
	if err := command(ctx, "sh", "-c", line, "place", source, root, release, headers, stock.Dir); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, completeMark), []byte(release), 0o644)
}
