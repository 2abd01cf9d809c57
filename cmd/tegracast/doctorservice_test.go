// SPDX-License-Identifier: Apache-2.0

package main

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/board/vjetson"
)

// TestDoctorUsesCUDAAsTheService runs the installed doctor as root in a Debian 12 with a stand-in for libcuda. It must use
// that with the unit's user and environment, and say what fails there. nvidia-modprobe runs with all privileges before
// the service.
func TestDoctorUsesCUDAAsTheService(t *testing.T) {
	if os.Getenv("TEGRACAST_LONG") == "" {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make test-long)")
	}
	if os.Getuid() != 0 {
		t.Skip("NEEDS root: it runs systemd in a folder")
	}
	dir := t.TempDir()
	packages(t, dir, newer, runtime.GOARCH)
	root := debianRoot(t, "12", "bookworm")
	deb := "tegracast_" + newer + "_" + runtime.GOARCH + ".deb"
	if err := os.Link(filepath.Join(dir, deb), filepath.Join(root, "root", deb)); err != nil {
		t.Fatal(err)
	}
	libraries, _ := filepath.Glob(filepath.Join(root, "usr/lib/*-linux-gnu")) // the pattern is well-formed
	library := filepath.Join(strings.Join(libraries, ""), "libcuda.so.1")
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", library, "../../cudahost/testdata/standin.c").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	bus, err := vjetson.FetchPackages(t.Context(), runtime.GOARCH, "bookworm", slog.Default(), "dbus")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("sh", "-ec", `cp -an "$0/etc" "$0/usr" "$1"; cp -an "$0/lib/." "$1/usr/lib"`, bus.Dir, root).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v\n%s", err, out)
	}
	c := startContainer(t, root)
	is := func(line, want string) {
		t.Helper()
		if out, err := c.Shell(t.Context(), line); err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v\n%s\nwant %q", line, err, out, want)
		}
	}
	const doctor = "; tegracast doctor | grep ' GPU '"
	is("dpkg -i /root/"+deb+" >/dev/null; systemd-sysusers --inline 'u messagebus - -' >&2; "+
		"systemctl daemon-reload; systemctl restart dbus.socket; systemctl is-active dbus.socket", "active\n")
	is("mknod -m 666 /dev/nvidiactl c 1 3"+doctor, "good     GPU           its device files can be opened: /dev/nvidiactl; CUDA works: stand-in, ")
	is("mkdir -p /run/systemd/system/tegracast.service.d; "+
		"printf '[Service]\nEnvironment=STANDIN_NO_INIT=1\n' >/run/systemd/system/tegracast.service.d/x.conf; systemctl daemon-reload"+
		doctor, "warning  GPU           a GPU is present, but not used, because CUDA fails: no CUDA: cuInit")
	const modprobe = "#!/bin/sh\nmknod /dev/nvidia-uvm c 1 3 && echo $* >/run/modprobed\n"
	is("printf '"+modprobe+"' >/usr/bin/nvidia-modprobe; chmod +x /usr/bin/nvidia-modprobe; systemctl start tegracast-devices && cat /run/modprobed", "-c 0 -u\n")
	is("rm /usr/bin/nvidia-modprobe; systemctl restart tegracast-devices; systemctl show -P Result tegracast-devices", "success\n")
}
