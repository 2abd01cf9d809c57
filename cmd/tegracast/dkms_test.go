package main

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tegracast/board/vjetson"
)

// dkmsModule does what dkms does with a package: it takes the sources that the package installs, and only those, copies them
// to its own tree, and builds the module there by the MAKE line of their dkms.conf, against the headers of the kernel's package.
func dkmsModule(t *testing.T, kernel vjetson.Kernel, deb string) (module string) {
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

// TestDKMS compiles the module from the package alone. That it works is TestService's to say, which loads it.
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
	module := dkmsModule(t, kernel, filepath.Join(dir, "tegracast-dkms_1.0.0_all.deb"))
	out, err := exec.CommandContext(t.Context(), "modinfo", "-F", "vermagic", module).Output()
	if err != nil || !strings.HasPrefix(string(out), kernel.Release+" ") {
		t.Errorf("vermagic %q, want that of %s; %v", out, kernel.Release, err)
	}
}
