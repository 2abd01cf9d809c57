// SPDX-License-Identifier: Apache-2.0

package kmodtest_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/board/vjetson"
)

// desktops matches the module's message about the symbols.
const desktops = `nv-p2p: .*desktop`

// testDesktop loads a driver with the symbols of a desktop's nv-p2p before the module, which must not call them. The
// module is the packaged one, except for the symbols' versions: Debian's kernels refuse symbols without versions, others
// accept them.
func testDesktop(t *testing.T, b built) {
	dir := filepath.Join(t.TempDir(), "desktop")
	if err := vjetson.BuildModule(t.Context(), b.kernel, "testdata/desktop", dir); err != nil {
		t.Fatal(err)
	}
	module := b.kmod(t, filepath.Join(t.TempDir(), "kmod"), "KBUILD_EXTRA_SYMBOLS="+filepath.Join(dir, "Module.symvers"))
	m := b.boot(t, vjetson.Config{Edu: true})
	m.load(filepath.Join(dir, "desktop.ko"))
	m.load(b.hostmem)
	m.load(module)
	m.shell(bind)
	m.says(t, `tegra_p2p0: pins through pin_user_pages`)
	m.says(t, desktops)
	m.guest(t, "^TestDMA$")
	m.shell("rmmod tegra_p2p; dmesg -c > /dev/null")
	err := m.LoadModule(t.Context(), module, "backend=nvp2p")
	if err == nil || !strings.Contains(err.Error(), "not supported") {
		t.Errorf("backend=nvp2p: %v, want EOPNOTSUPP", err)
	}
	m.says(t, desktops)
}

// says waits for a line in the kernel's log.
func (m machine) says(t *testing.T, pattern string) {
	t.Helper()
	if log := m.shell("dmesg | tail -n 20"); !regexp.MustCompile(pattern).MatchString(log) {
		t.Errorf("the kernel does not say %q:\n%s", pattern, log)
	}
}
