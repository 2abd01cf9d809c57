// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Files with the versions of symbols, and the versions that the module of orin() wants.
const (
	symvers         = "lib/modules/5.15.148-tegra/build/Module.symvers"
	providerSymvers = "usr/src/nvidia/nvidia-oot/Module.symvers"

	ofKernel   = "0xc50a38fc\tmodule_layout\tvmlinux\tEXPORT_SYMBOL\t\n0x92997ed8\t_printk\tvmlinux\tEXPORT_SYMBOL\t\n"
	ofProvider = "0x0000abcd\tnvidia_p2p_get_pages\tdrivers/nv-p2p/nvidia-p2p\tEXPORT_SYMBOL\t\n"
	ofModule   = "0xc50a38fc\tmodule_layout\n0x92997ed8\t_printk\n0x0000abcd\tnvidia_p2p_get_pages\n"
)

// TestDoctorSymbols covers modules that were compiled for another kernel of the same release, or for another provider of
// nv-p2p.
func TestDoctorSymbols(t *testing.T) {
	const (
		loaded  = "sys/module/tegra_p2p/parameters/allow_unsafe"
		source  = "var/lib/dkms/tegra_p2p/1/source/dkms.conf"
		inTree  = "lib/modules/5.15.148-tegra/kernel/fs/ext4.ko"
		refused = "[   12.1] tegra_p2p: disagrees about version of symbol _printk\n[   12.1] tegra_p2p: Unknown symbol _printk (err -22)\n"
		again   = "dkms remove tegra_p2p/1 -k 5.15.148-tegra; dkms install tegra_p2p/1 -k 5.15.148-tegra && modprobe tegra_p2p"
		other   = "compiled for another kernel of the release 5.15.148-tegra: "
		layout  = other + "it wants version 0xc50a38fc of module_layout, and the headers give 0x00000b0b"
		pages   = other + "it wants version 0x0000abcd of nvidia_p2p_get_pages, and the headers give 0x0000abce"
	)
	kernel := strings.Replace(ofKernel, "0xc50a38fc", "0x00000b0b", 1)
	provider := strings.Replace(ofProvider, "0x0000abcd", "0x0000abce", 1)
	for _, tt := range []struct {
		trial
		log, command string
	}{
		{trial{"the same", nil, "symbols", isGood, "the versions of symbols that the headers give"}, "", ""},
		{trial{"without nv-p2p's", map[string]string{providerSymvers: "-"}, "symbols", isGood, ""}, "", ""},
		{trial{"another kernel", map[string]string{symvers: kernel, loaded: "-"}, "symbols", isMissing, layout}, "", again},
		{trial{"another kernel, and the module", map[string]string{symvers: kernel, loaded: "-"}, "module", isMissing, "see symbols"}, "", ""},
		{trial{"another kernel, and loaded", map[string]string{symvers: kernel}, "symbols", isWarning, "stays until the next start"}, "", again},
		{trial{"another provider", map[string]string{providerSymvers: provider, loaded: "-"}, "symbols", isMissing, pages}, "", again},
		{trial{"without DKMS", map[string]string{symvers: kernel, loaded: "-", source: "-"}, "symbols", isMissing, "Compile it again; see"}, "", ""},
		{trial{"no headers", map[string]string{symvers: "-", providerSymvers: "-"}, "symbols", isNote, "there is no /" + symvers}, "", ""},
		{
			trial{"refused without headers", map[string]string{symvers: "-", loaded: "-"}, "symbols", isMissing, other + "the running kernel has another version of _printk"},
			refused,
			"apt-get install nvidia-l4t-kernel-headers nvidia-l4t-kernel-oot-headers && " + again,
		},
		{
			trial{"refused, and the headers agree", map[string]string{loaded: "-"}, "symbols", isWarning, "rejected because of its version of _printk: if it is rejected again"},
			refused,
			"modprobe tegra_p2p || apt-get install --reinstall nvidia-l4t-kernel-headers nvidia-l4t-kernel-oot-headers",
		},
		{trial{"refused before", nil, "symbols", isGood, ""}, refused, ""},
		{trial{"restart", map[string]string{loaded: "-", inTree: "x"}, "symbols", isMissing, "of the same release: restart the machine"}, refused, "reboot"},
		{
			trial{"headers of another kernel", map[string]string{symvers: kernel, inTree: "x"}, "symbols", isWarning, "of module_layout, and the headers give 0x00000b0b"},
			"",
			"apt-get install --reinstall nvidia-l4t-kernel-headers nvidia-l4t-kernel-oot-headers",
		},
		{trial{"not installed", map[string]string{"lib/modules/5.15.148-tegra/updates/tegra_p2p.ko": "-"}, "symbols", isNote, "not installed for Linux 5.15.148-tegra"}, "", ""},
	} {
		tt.run(t, func(p *patient) {
			p.kernelLog = func() string { return tt.log }
			if got := p.symbols().Command; tt.what == "symbols" && got != tt.command {
				t.Errorf("%s: command %q, want %q", tt.name, got, tt.command)
			}
		})
	}
	for text, want := range map[string]string{"": "has no versions of symbols", "x": "--dump-modversions /lib/modules/5.15.148-tegra/updates/tegra_p2p.ko: no modprobe"} {
		trial{"versions " + text, nil, "symbols", isNote, want}.run(t, func(p *patient) {
			p.dumpVersions = func(string) (string, error) {
				if text == "x" {
					return "", errors.New("no modprobe")
				}
				return text, nil
			}
		})
	}
}

// TestDumpVersions reads the versions of a file with the section that Linux's modpost writes (struct modversion_info of
// include/linux/module.h), and of compressed ones as Debian 13 and Ubuntu 24.04 install them.
func TestDumpVersions(t *testing.T) {
	dir := t.TempDir()
	source, module := filepath.Join(dir, "tegra_p2p.c"), filepath.Join(dir, "tegra_p2p.ko")
	const text = `static const struct { unsigned long crc; char name[64 - sizeof(long)]; } versions[]
	__attribute__((used, section("__versions"))) = { { 0xc50a38fc, "module_layout" }, { 0xabcd, "nvidia_p2p_get_pages" } };`
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"gcc", "-c", "-o", module, source}, {"xz", "-k", module}} {
		if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v (make setup-test installs it)\n%s", command, err, out)
		}
	}
	for _, file := range []string{module, module + ".xz"} {
		text, err := dumpVersions(file)
		got := symbolVersions(text)
		if err != nil || len(got) != 2 || got["module_layout"][0] != 0xc50a38fc || got["nvidia_p2p_get_pages"][0] != 0xabcd {
			t.Errorf("%s: %v, %v", file, got, err)
		}
	}
	if text, err := dumpVersions(source); err == nil {
		t.Errorf("of a text: %q", text)
	}
}

// FuzzSymbolVersions checks that versions of no content cause a panic, and that they agree with themselves.
func FuzzSymbolVersions(f *testing.F) {
	f.Add(ofModule, ofKernel)
	f.Add("0x1\ta\n", "0x2\ta\n0x1\ta\n")
	f.Add("0x1ffffffff\ta\n\t\n0x1\t\n", "\xff\tb")
	f.Fuzz(func(t *testing.T, module, headers string) {
		wanted := symbolVersions(module)
		for name, versions := range wanted {
			if name == "" || strings.ContainsAny(name, "\t\n") || len(versions) == 0 {
				t.Errorf("%q: %v", name, versions)
			}
		}
		if why := disagreement(wanted, symbolVersions(headers, module)); why != "" {
			t.Errorf("all that is wanted is given: %s", why)
		}
		disagreement(wanted, symbolVersions(headers))
	})
}
