// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// dkmsRoot is a copy of this machine's root in which the real dkms compiles and installs modules. Its changes are kept in
// memory and discarded with it.
type dkmsRoot struct{ dir, pid string }

// overlayRoot makes the copy in folder $0, with further folders, and ends with its standard input.
const overlayRoot = `mount -t tmpfs tmpfs "$0" && cd "$0" && mkdir upper work root && mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root &&
	mount --bind /dev root/dev && mount -t proc proc root/proc && mkdir -p root/lib/modules &&
	for shared in "$@"; do mkdir -p "root$shared" && mount --bind "$shared" "root$shared" || exit; done && echo ready && exec cat`

// newDKMSRoot makes a root. Changes of the shared folders are not discarded.
func newDKMSRoot(t *testing.T, shared ...string) dkmsRoot {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("NEEDS root: dkms installs modules as root only")
	}
	if _, err := exec.LookPath("dkms"); err != nil {
		t.Skip("NEEDS dkms (make setup-test installs it)")
	}
	dir := t.TempDir()
	c := exec.CommandContext(t.Context(), "unshare", append([]string{"--mount", "sh", "-c", overlayRoot, dir}, shared...)...)
	var said strings.Builder
	c.Stderr = &said
	stdin, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = c.Wait()
	})
	if line, _ := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		_ = c.Wait()
		if strings.Contains(said.String(), "overlay") || strings.Contains(said.String(), "unshare") {
			t.Skip("NEEDS overlayfs on the root's file system, and a namespace of mounts: " + said.String())
		}
		t.Fatal(said.String())
	}
	return dkmsRoot{filepath.Join(dir, "root"), strconv.Itoa(c.Process.Pid)}
}

// shell runs a line of the shell in the root and returns its output.
func (d dkmsRoot) shell(t *testing.T, line string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "nsenter", append([]string{"--target", d.pid, "--mount", "chroot", d.dir, "sh", "-c", line}, args...)...)
	c.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "HOME=/root"}
	for _, name := range []string{"ARCH", "CROSS_COMPILE"} { // for another processor
		if value := os.Getenv(name); value != "" {
			c.Env = append(c.Env, name+"="+value)
		}
	}
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%.80s: %v\n%s", line, err, out)
	}
	return string(out)
}

// write writes a file of the root.
func (d dkmsRoot) write(t *testing.T, name, text string) {
	t.Helper()
	d.shell(t, `mkdir -p "$(dirname "$0")" && printf %s "$1" > "$0"`, name, text)
}

// trigger runs the package's script as dpkg does after files of a kernel or of headers have changed.
func (d dkmsRoot) trigger(t *testing.T) (said string) {
	t.Helper()
	text, err := os.ReadFile("../../systemd/deb/scripts/dkms.postinst")
	if err != nil {
		t.Fatal(err)
	}
	return d.shell(t, `sh -c "$0" postinst triggered "/lib/modules /usr/src"`, string(text))
}

// The machine of TestDKMSTrigger: a kernel's headers, and those of nvidia-oot.
const (
	tegraRelease = "5.15.148-tegra"
	tegraBuild   = "/lib/modules/" + tegraRelease + "/build/"
	tegraOOT     = "/usr/src/nvidia/nvidia-oot/Module.symvers"
)

// tegraMakefile stands for Kbuild: it makes a module that wants the symbols of the headers, in their versions.
const tegraMakefile = `modules:
	{ echo 'static const struct { unsigned long crc; char name[64 - sizeof(long)]; } versions[]' \
	'__attribute__((used, section("__versions"))) = {'; awk -F '\t' '{print "{" $$1 ", \"" $$2 "\"},"}' Module.symvers; echo '};'; \
	cat nvp2p; } > $(M)/made.c; gcc -c -o $(M)/tegra_p2p.ko $(M)/made.c
clean:
`

// modinfo returns C for a module's information.
func modinfo(text string) string {
	return `const char info[] __attribute__((used, section(".modinfo"))) = "` + text + `";`
}

// TestDKMSTrigger has the package's trigger and the real dkms look after a module while the headers change.
func TestDKMSTrigger(t *testing.T) {
	const (
		layout   = "0xc50a38fc\tmodule_layout\tvmlinux\tEXPORT_SYMBOL\t\n"
		pages    = "0x0000abcd\tnvidia_p2p_get_pages\tnvidia-p2p\tEXPORT_SYMBOL\t\n"
		compiles = "tegra_p2p/1 no longer matches Linux " + tegraRelease + ": compiling it again\n"
		fails    = "tegra_p2p/1 was not compiled: see /var/log/tegracast-dkms.log and tegracast doctor\n"
		older    = "0xc50a38fc 0x0000abcd "
		newer    = "0x00000b0b 0x0000abcd "
	)
	d := newDKMSRoot(t)
	conf, err := os.ReadFile("../../tegra/kmod/dkms.conf")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"/usr/src/tegra_p2p-1/dkms.conf": strings.ReplaceAll(string(conf), "#MODULE_VERSION#", "1"), "/usr/src/tegra_p2p-1/Kbuild": "",
		tegraBuild + "Makefile": tegraMakefile, tegraBuild + ".config": "", tegraBuild + "include/x.h": "", tegraBuild + "Module.symvers": layout + pages,
		tegraBuild + "nvp2p": modinfo("nvp2p=its own declarations"), "/tmp/nvidia.c": modinfo("license=NVIDIA"),
	} {
		d.write(t, name, text)
	}
	said := d.shell(t, "dkms install tegra_p2p/1 -k "+tegraRelease)
	nvidia := "gcc -c -o /lib/modules/" + tegraRelease + "/nvidia.ko /tmp/nvidia.c && depmod " + tegraRelease
	for _, step := range []struct{ what, change, says, versions string }{
		{"installed", ":", "", older},
		{"a new symbol", `printf '0x1\tnew\tvmlinux\n' >> ` + tegraBuild + "Module.symvers", "", older},
		{"another kernel", "sed -i s/0xc50a38fc/0x00000b0b/ " + tegraBuild + "Module.symvers; sed -i /new/d " + tegraBuild + "Module.symvers", compiles, newer},
		{"nothing", ":", "", newer},
		{"the provider's headers", "cd " + tegraBuild + "; mkdir -p ${0%/*}; sed -n /p2p/p Module.symvers > $0; sed -i /p2p/d Module.symvers", "", newer},
		{"another provider", "sed -i s/0x0000abcd/0x0000abce/ $0", compiles, "0x00000b0b "},
		{"no headers", "mv " + tegraBuild + "Module.symvers /tmp", "", "0x00000b0b "},
		{"headers again", "mv /tmp/Module.symvers " + tegraBuild, "", "0x00000b0b "},
		{"the proprietary driver", nvidia + " && echo > " + tegraBuild + "nvp2p '" + modinfo("nvp2p=none beside a proprietary nvidia.ko") + "'", compiles, "0x00000b0b "},
		{"nothing again", ":", "", "0x00000b0b "},
		{
			"a broken compiler", "sed -i s/0x00000b0b/0x00000b0c/ " + tegraBuild + "Module.symvers; sed -i 's/gcc -c/false/' " + tegraBuild + "Makefile",
			compiles, "0x00000b0b ",
		},
		{"another provider without headers", "mv " + tegraBuild + "Module.symvers /tmp; sed -i s/0x0000abce/0x0000abcf/ $0", "", "0x00000b0b "},
		{"the compiler again", "mv /tmp/Module.symvers " + tegraBuild + "; sed -i 's/false/gcc -c/' " + tegraBuild + "Makefile", compiles, "0x00000b0c "},
		{"headers of another kernel than the modules'", "mkdir -p ${1%/*}; cp /lib/modules/" + tegraRelease + "/updates/dkms/tegra_p2p.ko $1; " +
			"sed -i s/0x00000b0c/0x00000b0d/ " + tegraBuild + "Module.symvers", "", "0x00000b0c "},
		{"modules of that kernel", "rm $1", compiles, "0x00000b0d "},
	} {
		d.shell(t, step.change, tegraOOT, "/lib/modules/"+tegraRelease+"/kernel/other.ko")
		got := d.trigger(t)
		versions := d.shell(t, "modprobe --dump-modversions /lib/modules/"+tegraRelease+"/updates/dkms/tegra_p2p.ko 2>/dev/null | cut -f 1 | tr '\\n' ' '")
		// Releases of dkms print more, or less.
		right := strings.HasPrefix(got, step.says) && (got != "") == (step.says != "") && strings.HasSuffix(got, fails) == (step.what == "a broken compiler")
		if !right || versions != step.versions {
			t.Fatalf("%s: %q, and versions %q, want %q, %q\n%s", step.what, got, versions, step.says, step.versions, said)
		}
	}
	if log := d.shell(t, "cat /var/log/tegracast-dkms.log"); !strings.Contains(log, "false") {
		t.Errorf("the log that is named: %s", log)
	}
}
