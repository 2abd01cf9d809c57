// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/elf"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/board/vjetson"
	"github.com/tegracast/tegracast/board/vjetson/nvp2ptest"
	"github.com/tegracast/tegracast/fpga/edu"
)

// dkmsModule does what dkms does with a package: it copies only the sources that the package installs to a tree of its
// own, and builds the module there by the MAKE line of their dkms.conf, against the headers of the kernel's package. env
// describes what else is on the machine.
func dkmsModule(t *testing.T, kernel vjetson.Kernel, deb string, env ...string) (module string) {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "dpkg-deb", "-x", deb, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	sources, err := filepath.Glob(filepath.Join(dir, "usr/src/tegra_p2p-*"))
	if err != nil || len(sources) != 1 {
		t.Fatalf("the package has sources in %q, %v", sources, err)
	}
	version := strings.TrimPrefix(filepath.Base(sources[0]), "tegra_p2p-")
	build := filepath.Join(dir, "dkms/tegra_p2p", version, "build")
	if err := os.CopyFS(build, os.DirFS(sources[0])); err != nil {
		t.Fatal(err)
	}
	script := func(step string) {
		t.Helper()
		// dkms(8): the file is read as a script that sees these variables.
		c := exec.CommandContext(t.Context(), "bash", "-e", "-c", `. ./dkms.conf; [ "$PACKAGE_NAME-$PACKAGE_VERSION" = "$0" ]; eval "`+step+`"`, filepath.Base(sources[0]))
		c.Dir = build
		c.Env = append(os.Environ(), "kernelver="+kernel.Release, "kernel_source_dir="+filepath.Join(kernel.Dir, "usr/src/linux-headers-"+kernel.Release),
			"dkms_tree="+filepath.Join(dir, "dkms"), "ARCH=arm64", "CROSS_COMPILE=aarch64-linux-gnu-", "KCFLAGS=-Werror")
		c.Env = append(c.Env, env...)
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", step, err, out)
		}
	}
	script("${MAKE[0]}")
	module = filepath.Join(t.TempDir(), "tegra_p2p.ko")
	made, err := os.ReadFile(filepath.Join(build, "tegra_p2p.ko")) // BUILT_MODULE_NAME, in BUILT_MODULE_LOCATION's default
	if err != nil || os.WriteFile(module, made, 0o600) != nil {
		t.Fatal(err)
	}
	script("$CLEAN")
	if left, err := filepath.Glob(filepath.Join(build, "*.ko")); err != nil || len(left) > 0 {
		t.Errorf("after CLEAN there is %q, %v", left, err)
	}
	return module
}

// TestDKMS compiles the module from the package alone. TestService checks that it works. On a Jetson the module uses
// nv-p2p, with declarations of its own, or with Jetson Linux's header and symbol versions.
func TestDKMS(t *testing.T) {
	if testing.Short() {
		t.Skip("NEEDS a kernel's headers, which -short does not fetch")
	}
	kernel, err := vjetson.Fetch(t.Context(), "arm64", slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	packages(t, dir, "1.0.0", "arm64")
	deb := filepath.Join(dir, "tegracast-dkms_1.0.0_all.deb")
	t.Run("package alone", func(t *testing.T) {
		module := dkmsModule(t, kernel, deb, "NVP2P_PACKAGES="+t.TempDir())
		out, err := exec.CommandContext(t.Context(), "modinfo", "-F", "vermagic", module).Output()
		if err != nil || !strings.HasPrefix(string(out), kernel.Release+" ") {
			t.Errorf("vermagic %q, want that of %s; %v", out, kernel.Release, err)
		}
		if got := weak(t, module); !slices.Equal(got, nvp2pCalls) {
			t.Errorf("the module asks for %q if they are there, want %q", got, nvp2pCalls)
		}
	})
	t.Run("Jetson Linux 36", func(t *testing.T) {
		if !nvp2ptest.Here() {
			t.Skip("NEEDS " + nvp2ptest.Absent)
		}
		packaged := t.TempDir()
		provider, err := nvp2ptest.NVIDIA(t.Context(), kernel, filepath.Join(packaged, "nvidia/nvidia-oot"))
		if err != nil {
			t.Fatal(err)
		}
		module := dkmsModule(t, kernel, deb, "NVP2P_PACKAGES="+packaged)
		program := filepath.Join(dir, "program")
		if out, err := exec.CommandContext(t.Context(), "dpkg-deb", "-x", filepath.Join(dir, "tegracast_1.0.0_arm64.deb"), program).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		m := vjetson.StartTest(t, vjetson.Config{Kernel: kernel, Edu: true, Files: map[string]string{"/bin/tegracast": filepath.Join(program, "usr/bin/tegracast")}})
		if err := errors.Join(m.LoadModule(t.Context(), provider.Module), m.LoadModule(t.Context(), module)); err != nil {
			t.Fatal(err)
		}
		bind(t, m)
		out, err := m.Shell(t.Context(), "tegracast doctor | grep ' pinning '")
		if err != nil || !strings.Contains(out, "/dev/tegra_p2p0 pins through nv-p2p") {
			t.Errorf("doctor says %q %v", out, err)
		}
		guestLoopback(t, m, 4096, edu.BufferSize)
	})
}

// nvp2pCalls are the calls of Tegra's nv-p2p, in order.
var nvp2pCalls = []string{
	"nvidia_p2p_dma_map_pages", "nvidia_p2p_dma_unmap_pages", "nvidia_p2p_free_dma_mapping", "nvidia_p2p_free_page_table", "nvidia_p2p_get_pages", "nvidia_p2p_put_pages",
}

// weak returns the symbols of nv-p2p that a module uses if they exist, in order, without the one that only a desktop
// driver has.
func weak(t *testing.T, module string) (names []string) {
	t.Helper()
	f, err := elf.Open(module)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if s.Section == elf.SHN_UNDEF && elf.ST_BIND(s.Info) == elf.STB_WEAK && strings.HasPrefix(s.Name, "nvidia_p2p_") && s.Name != "nvidia_p2p_get_pages_persistent" {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return names
}
