// SPDX-License-Identifier: Apache-2.0

package kmodtest_test

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/board/vjetson"
)

// desktopHeader has the parts of the desktop driver's nv-p2p.h that the specification shows (GPUDirect RDMA 12.9 §13.3).
const desktopHeader = `
#include <linux/types.h>
enum nvidia_p2p_page_size_type { NVIDIA_P2P_PAGE_SIZE_4KB, NVIDIA_P2P_PAGE_SIZE_64KB, NVIDIA_P2P_PAGE_SIZE_128KB };
struct nvidia_p2p_page_table { uint32_t version; uint32_t page_size; struct nvidia_p2p_page **pages; uint32_t entries; };
struct nvidia_p2p_dma_mapping { uint32_t version; uint32_t entries; uint64_t *dma_addresses; };
int nvidia_p2p_get_pages(uint64_t p2p_token, uint32_t va_space_token, uint64_t virtual_address, uint64_t length,
	struct nvidia_p2p_page_table **page_table, void (*free_callback)(void *data), void *data);
`

// TestForeignHeader checks that the module builds without nv-p2p, and reports why it does not build with the wrong one.
func TestForeignHeader(t *testing.T) {
	k, err := vjetson.Fetch(t.Context(), "arm64", slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Run("none", func(t *testing.T) {
		if err := vjetson.BuildModule(t.Context(), k, "..", filepath.Join(t.TempDir(), "kmod"), "NVP2P=none"); err != nil {
			t.Error(err)
		}
	})
	t.Run("desktop", func(t *testing.T) {
		dir := t.TempDir()
		files(t, dir, map[string]string{"nv-p2p.h": desktopHeader})
		err := vjetson.BuildModule(t.Context(), k, "..", filepath.Join(dir, "kmod"), "NVP2P="+dir)
		if err == nil || !strings.Contains(err.Error(), "the desktop driver's: its calls take tokens, 64 KiB pages") {
			t.Errorf("%v", err)
		}
	})
}

func files(t *testing.T, dir string, list map[string]string) {
	t.Helper()
	for name, text := range list {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// kbuildSays is a makefile that prints the flags with which Kbuild would compile the module.
const kbuildSays = `
include $(src)/Kbuild
all:
	@printf '%s\n' $(filter-out -I%,$(ccflags-y)) 'symbols $(strip $(KBUILD_EXTRA_SYMBOLS))'
`

// Folders of NVIDIA's packages, and the expected result of Kbuild.
const (
	agx  = "src/nvidia/nvidia-oot/"
	igx  = "src/linux-headers-tegra-oot-5.15.0-1012/"
	r35  = "src/linux-headers-5.10.120-tegra-ubuntu20.04_aarch64/"
	name = "include/linux/nv-p2p.h"

	arm64   = "CONFIG_ARM64=y"
	own     = "own"
	jetsons = "Jetson Linux's header"
)

var declarations = []struct {
	what      string
	there     []string // files
	variables string
	source    string
	folder    string // under the root, or own
	symbols   string
}{
	{"nothing", nil, arm64, "its own declarations", own, ""},
	{"x86-64", []string{agx + name, r35 + "kernel-5.10/" + name}, "", "none", "", ""},
	{
		"Jetson Linux 36",
		[]string{agx + name, agx + "Module.symvers", r35 + "kernel-5.10/" + name},
		arm64, jetsons, agx + "include/linux", agx + "include/linux/../../Module.symvers",
	},
	{"without versions", []string{agx + name}, arm64, jetsons, agx + "include/linux", ""},
	{"IGX", []string{igx + name, igx + "Module.symvers"}, arm64, jetsons, igx + "include/linux", igx + "include/linux/../../Module.symvers"},
	{"IGX, a folder deeper", []string{igx + "nvidia-oot/" + name}, arm64, jetsons, igx + "nvidia-oot/include/linux", ""},
	{"Jetson Linux 35", []string{r35 + "kernel-5.10/" + name}, arm64, jetsons, r35 + "kernel-5.10/./include/linux", ""},
	{"NVIDIA's part of 35", []string{r35 + "kernel-5.10/Makefile", r35 + "nvidia/" + name}, arm64, jetsons, r35 + "kernel-5.10/../nvidia/include/linux", ""},
	{"NVIDIA's part within", []string{r35 + "kernel-5.10/nvidia/" + name}, arm64, jetsons, r35 + "kernel-5.10/nvidia/include/linux", ""},
	{"given", []string{agx + name, "given/nv-p2p.h", "given/Module.symvers"}, arm64 + " NVP2P=ROOT/given", "the header in NVP2P", "given", "given/Module.symvers"},
	{"given on x86-64", []string{"given/nv-p2p.h"}, "NVP2P=ROOT/given", "the header in NVP2P", "given", ""},
	{"left out", []string{agx + name}, arm64 + " NVP2P=none", "none", "", ""},
}

// TestDeclarations checks where Kbuild takes the declarations of nv-p2p from.
func TestDeclarations(t *testing.T) {
	for _, tt := range declarations {
		t.Run(tt.what, func(t *testing.T) {
			root := t.TempDir()
			for _, f := range tt.there {
				files(t, root, map[string]string{f: ""})
			}
			variables := strings.Fields(strings.ReplaceAll(tt.variables, "ROOT", root))
			kmod, out, err := kbuild(t, append(variables, "srctree="+root+"/"+r35+"kernel-5.10", "NVP2P_PACKAGES="+root+"/src")...)
			if err != nil {
				t.Fatalf("%v %s", err, out)
			}
			want := `-DTEGRA_P2P_NVP2P_SOURCE="` + tt.source + "\"\n"
			switch tt.folder {
			case "":
				want += "-DTEGRA_P2P_NO_NVP2P\n"
			case own:
				want += "-idirafter\n" + kmod + "/nvp2p\n"
			default:
				want += "-idirafter\n" + root + "/" + tt.folder + "\n"
			}
			want += strings.TrimSuffix("symbols "+root+"/"+tt.symbols, root+"/") + "\n"
			if out != want {
				t.Errorf("%swant %s", out, want)
			}
		})
	}
	if _, out, err := kbuild(t, arm64, "NVP2P="+t.TempDir()); err == nil || !strings.Contains(out, "there is no nv-p2p.h") {
		t.Errorf("a folder without the header: %v %s", err, out)
	}
}

// TestProprietaryDriver checks that on arm64 nv-p2p is left out where a proprietary nvidia.ko is installed for the kernel.
func TestProprietaryDriver(t *testing.T) {
	const release = "5.15.148-tegra"
	for _, tt := range []struct{ license, release, source string }{
		{"NVIDIA", release, "none beside a proprietary nvidia.ko"},
		{"Dual MIT/GPL", release, "its own declarations"},
		{"NVIDIA", "5.15.136-tegra", "its own declarations"},
	} {
		root := t.TempDir()
		files(t, root, map[string]string{"nvidia.c": `const char license[] __attribute__((used, section(".modinfo"))) = "license=` + tt.license + `";`})
		folder := filepath.Join(root, "lib/modules", tt.release)
		for _, line := range []string{"mkdir -p " + folder, "gcc -c -o " + folder + "/nvidia.ko " + root + "/nvidia.c", "PATH=$PATH:/sbin depmod -b " + root + " " + tt.release} {
			if out, err := exec.CommandContext(t.Context(), "sh", "-c", line).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v (make setup-test installs it)\n%s", line, err, out)
			}
		}
		_, out, err := kbuild(t, arm64, "srctree="+root, "NVP2P_PACKAGES="+root, "INSTALL_MOD_PATH="+root, "KERNELRELEASE="+release)
		if err != nil || !strings.Contains(out, `-DTEGRA_P2P_NVP2P_SOURCE="`+tt.source+"\"\n") {
			t.Errorf("%+v: %v\n%s", tt, err, out)
		}
		said := strings.Contains(out, `nv-p2p is left out: nvidia.ko of Linux 5.15.148-tegra has the license "NVIDIA"`)
		if left := strings.Contains(out, "-DTEGRA_P2P_NO_NVP2P\n"); left != (tt.source[:4] == "none") || said != left {
			t.Errorf("%+v: left out: %v, said: %v\n%s", tt, left, said, out)
		}
	}
}

// kbuild runs make on the module's Kbuild.
func kbuild(t *testing.T, variables ...string) (kmod, out string, err error) {
	t.Helper()
	kmod, err = filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "make", append([]string{"-s", "-f", "-", "src=" + kmod}, variables...)...)
	c.Stdin = strings.NewReader(kbuildSays)
	b, err := c.CombinedOutput()
	return kmod, string(b), err
}
