// SPDX-License-Identifier: Apache-2.0

package tegra

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

// TestBusyDevice: a device that another process has opened is refused with who that is, and how to stop it.
func TestBusyDevice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tegra_p2p0")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close() // this process is not named
	refused := func() string {
		t.Helper()
		m, err := newFakeModule()
		if err != nil {
			t.Fatal(err)
		}
		m.fail["setEvent"] = unix.EBUSY
		_, err = newDevice(path, m)
		if err == nil {
			t.Fatal("it was opened")
		}
		return err.Error()
	}
	if said := refused(); !strings.Contains(said, "sudo fuser -v "+path) {
		t.Error(said)
	}
	other := exec.CommandContext(t.Context(), "sleep", "60")
	other.ExtraFiles = []*os.File{file}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = other.Process.Kill(), other.Wait() }()
	who := fmt.Sprintf("process %d (sleep); systemctl stop tegracast, if it is the service, else kill %[1]d", other.Process.Pid)
	if said := refused(); !strings.Contains(said, who) {
		t.Errorf("%s\nwant %s", said, who)
	}
	hint := (&uapi.Error{Call: uapi.CallSetEvent, Errno: unix.EBUSY}).Error()
	if !strings.HasSuffix(hint, "another process has opened the device: stop it") {
		t.Error(hint)
	}
}
