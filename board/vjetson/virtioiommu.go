// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
)

// virtioIOMMU is the name of the driver module of virtio's IOMMU. It is loaded after virtio_pci and before all others,
// because a device whose DMA goes through the IOMMU waits for the IOMMU's driver.
const virtioIOMMU = "virtio_iommu"

// buildVirtioIOMMU returns the file of virtio's IOMMU driver for a kernel without it.
func buildVirtioIOMMU(ctx context.Context, k Kernel, log *slog.Logger) (string, error) {
	return BuildFromSource(ctx, k, "drivers/iommu", "virtio-iommu", "obj-m := virtio-iommu.o\n", log)
}

// BuildFromSource returns the file of a module that a kernel's package lacks, and builds it once from Debian's source
// of the kernel. folder is the module's folder in the source, module its name, and kbuild the text of its Kbuild. The
// file is in the kernel's folder.
func BuildFromSource(ctx context.Context, k Kernel, folder, module, kbuild string, log *slog.Logger) (string, error) {
	file := filepath.Join(k.Dir, module+".ko")
	find := func(string) (string, bool) {
		_, err := os.Stat(file)
		return file, err == nil
	}
	return once(ctx, find, func(ctx context.Context, _ string) (string, error) {
		work, err := os.MkdirTemp(k.Dir, module+"-")
		if err != nil {
			return "", fmt.Errorf("vjetson: cache: %w", err)
		}
		defer os.RemoveAll(work)
		log.Info("building a module of the kernel's source, once", "module", module, "kernel", k.Release)
		tree, err := fetchSource(ctx, k, work, log, folder)
		if err != nil {
			return "", err
		}
		source, built := filepath.Join(tree, folder), filepath.Join(work, "built")
		if err := os.WriteFile(filepath.Join(source, "Kbuild"), []byte(kbuild), 0o644); err != nil {
			return "", fmt.Errorf("vjetson: cache: %w", err)
		}
		if err := BuildModule(ctx, k, source, built); err != nil {
			return "", err
		}
		if err := os.Rename(filepath.Join(built, module+".ko"), file); err != nil {
			return "", fmt.Errorf("vjetson: cache: %w", err)
		}
		return file, nil
	})
}
