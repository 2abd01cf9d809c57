// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
)

// virtioIOMMU is the module of virtio's IOMMU. It is loaded behind virtio_pci and before everything else: a device whose
// DMA goes through the IOMMU waits for its driver.
const virtioIOMMU = "virtio_iommu"

// buildVirtioIOMMU returns the file of virtio's IOMMU driver for a kernel that comes without it, which it builds once from
// the kernel's source. It lies in the kernel's folder.
func buildVirtioIOMMU(ctx context.Context, k Kernel, log *slog.Logger) (string, error) {
	const module = "virtio-iommu.ko"
	file := filepath.Join(k.Dir, module)
	find := func(string) (string, bool) {
		_, err := os.Stat(file)
		return file, err == nil
	}
	return once(ctx, find, func(ctx context.Context, _ string) (string, error) {
		work, err := os.MkdirTemp(k.Dir, "virtio-iommu-")
		if err != nil {
			return "", fmt.Errorf("vjetson: cache: %w", err)
		}
		defer os.RemoveAll(work)
		log.Info("building the driver of virtio's IOMMU, once", "kernel", k.Release)
		tree, err := fetchSource(ctx, k, work, log, "drivers/iommu")
		if err != nil {
			return "", err
		}
		source, built := filepath.Join(tree, "drivers/iommu"), filepath.Join(work, "built")
		if err := os.WriteFile(filepath.Join(source, "Kbuild"), []byte("obj-m := virtio-iommu.o\n"), 0o644); err != nil {
			return "", fmt.Errorf("vjetson: cache: %w", err)
		}
		if err := BuildModule(ctx, k, source, built); err != nil {
			return "", err
		}
		if err := os.Rename(filepath.Join(built, module), file); err != nil {
			return "", fmt.Errorf("vjetson: cache: %w", err)
		}
		return file, nil
	})
}
