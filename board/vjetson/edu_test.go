// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// TestProbe covers both kinds of devices with one out-of-tree module: QEMU's, and one that this process serves.
func TestProbe(t *testing.T) {
	for _, a := range arches {
		t.Run(a.name, func(t *testing.T) { testProbe(t, a.name) })
	}
}

func testProbe(t *testing.T, arch string) {
	k, probe := buildProbe(t, arch, defaultSeries)
	t.Run("edu", func(t *testing.T) { testEdu(t, k, probe) })
	t.Run("functions", func(t *testing.T) { testFunctions(t, k, probe) })
}

// TestSeries checks that the other series of kernels boot, have the requested modules, and can use edu.
func TestSeries(t *testing.T) {
	if os.Getenv("TEGRACAST_LONG") == "" {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make test-long)")
	}
	for _, a := range arches {
		for _, series := range Series {
			if series == defaultSeries {
				continue // covered by TestProbe
			}
			t.Run(series+" "+a.name, func(t *testing.T) {
				t.Parallel()
				k, probe := buildProbe(t, a.name, series)
				testEdu(t, k, probe)
				testFunctions(t, k, probe)
			})
		}
	}
}

// buildProbe builds the module in testdata for a kernel.
func buildProbe(t *testing.T, arch, series string) (Kernel, string) {
	t.Helper()
	k, err := FetchSeries(t.Context(), arch, series, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "probe")
	if err := BuildModule(t.Context(), k, "testdata/probe", dir); err != nil {
		t.Fatal(err)
	}
	return k, filepath.Join(dir, "vjetson_probe.ko")
}

const eduPath = "/sys/bus/pci/drivers/vjetson_probe_edu/0000:01:00.0/"

func testEdu(t *testing.T, k Kernel, probe string) {
	useEdu(t, StartTest(t, Config{Kernel: k, Edu: true}), probe, func() {})
}

// useEdu uses an edu device in the first slot: DMA through the IOMMU, an unplug, and a DMA that the IOMMU refuses. more
// contains further tests, which run before that.
func useEdu(t *testing.T, m *Machine, probe string, more func()) {
	ctx := t.Context()
	if err := m.LoadModule(ctx, probe); err != nil {
		t.Fatal(err)
	}
	shell := func(line, want string) {
		t.Helper()
		if out, err := m.Shell(ctx, line); err != nil || out != want {
			t.Errorf("%s: %q %v, want %q", line, out, err, want)
		}
	}
	t.Run("through the IOMMU", func(t *testing.T) {
		shell("cat /sys/bus/pci/devices/0000:01:00.0/iommu_group/type", "DMA\n")
		shell("ls /sys/bus/pci/devices/0000:01:00.0/msi_irqs | wc -l", "1\n")
		shell("for i in 1 2 3; do echo 1 > "+eduPath+"transfer || exit 1; done; cat "+eduPath+"counts", "3 6\n")
	})
	more()
	t.Run("hot-unplug and plug", func(t *testing.T) {
		if err := m.HotUnplug(ctx); err != nil {
			t.Fatal(err)
		}
		shell("ls /sys/bus/pci/drivers/vjetson_probe_edu | grep -c 0000 || true", "0\n")
		ready, err := m.Expect("vjetson_probe_edu 0000:01:00.0: edu 0x.* ready")
		if err != nil {
			t.Fatal(err)
		}
		if err := m.HotPlug(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := ready.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		// The attributes appear after the driver's own message.
		shell("until [ -e "+eduPath+"counts ]; do usleep 10000; done; echo 1 > "+eduPath+"transfer && cat "+eduPath+"counts", "1 2\n")
	})
	t.Run("unmapped address", func(t *testing.T) {
		event, err := m.Expect(`arm-smmu-v3 .*event 0x10 received|virtio_iommu .*page fault|DMAR: .*fault`)
		if err != nil {
			t.Fatal(err)
		}
		shell("echo 1 > "+eduPath+"unmapped && echo done", "done\n")
		if line, err := event.Wait(ctx); err != nil {
			t.Errorf("%q %v", line, err)
		}
		shell("echo 1 > "+eduPath+"transfer && echo right", "right\n")
		shell("rmmod vjetson_probe && echo gone", "gone\n")
	})
}
