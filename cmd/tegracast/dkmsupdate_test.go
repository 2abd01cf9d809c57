// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/board/vjetson"
)

// layoutOf is the beginning of the line of Module.symvers for the symbol that every module wants.
const layoutOf = "\tmodule_layout\t"

// debianPackage makes a Debian package of files.
func debianPackage(t *testing.T, name, version string, files map[string]string) (deb string) {
	t.Helper()
	dir := t.TempDir()
	files["DEBIAN/control"] = "Package: " + name + "\nVersion: " + version + "\nArchitecture: all\nMaintainer: a test <test@example.org>\nDescription: for a test\n"
	for file, text := range files {
		file = filepath.Join(dir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	deb = filepath.Join(t.TempDir(), name+".deb")
	if out, err := exec.CommandContext(t.Context(), "dpkg-deb", "--root-owner-group", "-Zgzip", "--build", dir, deb).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	return deb
}

// TestDKMSUpdates replaces a kernel by one of the same release. The module that dkms has compiled for the headers of the
// first is refused by the second, whose headers come later: doctor says which command compiles it again, the package's
// trigger does, and the new module is loaded. The headers differ in the version of one symbol. dkms compiles on this
// machine, for the virtual Jetson, which has dpkg and no compiler.
func TestDKMSUpdates(t *testing.T) {
	if !longRun {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make test-long)")
	}
	kernel, err := vjetson.Fetch(t.Context(), "arm64", slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	dir, release := t.TempDir(), kernel.Release
	packages(t, dir, "1.0.0", "arm64")
	headers := filepath.Join(kernel.Dir, "usr/src/linux-headers-"+release)
	newer, err := os.ReadFile(filepath.Join(headers, "Module.symvers"))
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(newer), layoutOf)
	older := string(newer[:at-8]) + "0ddba115" + string(newer[at:])

	t.Setenv("ARCH", "arm64")
	t.Setenv("CROSS_COMPILE", "aarch64-linux-gnu-")
	d := newDKMSRoot(t, kernel.Dir, dir)
	build := "/lib/modules/" + release + "/build"
	d.shell(t, "dpkg-deb -x $0/tegracast-dkms_1.0.0_all.deb / && mkdir -p ${2%/build} && cp -rs $1 $2 && rm $2/Module.symvers", dir, headers, build)
	change := func(symvers string) { // a file, because an argument cannot be as long
		t.Helper()
		file := filepath.Join(dir, "Module.symvers")
		if err := os.WriteFile(file, []byte(symvers), 0o644); err != nil {
			t.Fatal(err)
		}
		d.shell(t, "cp $0 $1", file, build)
	}
	change(older)
	d.shell(t, "dkms install tegra_p2p/1.0.0 -k $0/aarch64", release)
	tree := filepath.Join(dir, "tree.tar")
	d.shell(t, "tar -C / -cf $0 lib/modules/$1/updates var/lib/dkms/tegra_p2p", tree, release)

	if out, err := exec.CommandContext(t.Context(), "dpkg-deb", "-x", filepath.Join(dir, "tegracast_1.0.0_arm64.deb"), dir).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	m := vjetson.StartTest(t, vjetson.Config{Kernel: kernel, Full: true, Files: map[string]string{
		"/usr/bin/tegracast": filepath.Join(dir, "usr/bin/tegracast"), "/root/tree.tar": tree,
		"/root/1.deb": debianPackage(t, "dkms", "3", map[string]string{}), "/root/2.deb": filepath.Join(dir, "tegracast-dkms_1.0.0_all.deb"),
		"/root/3.deb":     debianPackage(t, "nvidia-l4t-kernel-headers", "1", map[string]string{build + "/Makefile": "", build + "/Module.symvers": older}),
		"/root/newer.deb": debianPackage(t, "nvidia-l4t-kernel-headers", "2", map[string]string{build + "/Makefile": "", build + "/Module.symvers": string(newer)}),
	}})
	says := func(line string, want ...string) {
		t.Helper()
		out, err := m.Shell(t.Context(), line)
		if err != nil || slices.ContainsFunc(want, func(w string) bool { return !strings.Contains(out, w) }) {
			t.Fatalf("%s: %v, want %q\n%s", line, err, want, out)
		}
	}
	const (
		symbols   = "tegracast doctor | grep -A 1 ' symbols '; true"
		compiling = "compiling it again\n"
	)
	says("tar -C / -xf /root/tree.tar && depmod -a && rm -rf " + build + " && dpkg -i /root/[123].deb > /root/said 2>&1 && ! grep 'compiling it' /root/said")
	says("modprobe tegra_p2p; dmesg | tail", "tegra_p2p: disagrees about version of symbol module_layout")
	says(symbols, "warning", "the headers do not belong to the installed kernel of the release")
	says("dpkg -i /root/newer.deb 2>&1 | grep -v warning: && dpkg-query -W -f ' ${db:Status-Abbrev}' tegracast-dkms",
		"Processing triggers for tegracast-dkms", compiling, "tegra_p2p/1.0.0 was not compiled: see", " ii ") // its dkms has no program
	says(symbols, "missing", "it wants version 0x0ddba115 of module_layout",
		"fix: dkms remove tegra_p2p/1.0.0 -k "+release+"; dkms install tegra_p2p/1.0.0 -k "+release+" && modprobe tegra_p2p\n")

	change(string(newer))
	if said := d.trigger(t); !strings.Contains(said, compiling) || strings.Contains(said, "was not compiled") {
		t.Errorf("the trigger says %q", said)
	}
	d.shell(t, "cp /lib/modules/$0/updates/dkms/tegra_p2p.ko $1", release, dir)
	if err := m.CopyIn(t.Context(), filepath.Join(dir, "tegra_p2p.ko"), "/lib/modules/"+release+"/updates/dkms/tegra_p2p.ko"); err != nil {
		t.Fatal(err)
	}
	says("modprobe tegra_p2p && lsmod", "tegra_p2p")
	says(symbols, "good", "tegra_p2p wants the versions of symbols that the headers give")
}
