// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

const shareClient = "/usr/local/bin/share-example"

// shareFiles returns the example of a consumer, for the machine.
func shareFiles(t *testing.T) map[string]string {
	t.Helper()
	exe := filepath.Join(t.TempDir(), "share-example")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", exe, "github.com/tegracast/tegracast/pipeline/share/example")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=arm64")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return map[string]string{shareClient: exe}
}

// shares makes the service give the camera's frames to a process of another user, under all of the unit's restrictions.
// The slots are then memfds, which the kernel module pins. The socket's folder is open to all, the socket only to its
// group.
func (a *installed) shares(t *testing.T) {
	const file, socket = "/etc/tegracast/tegracast.yaml", "/run/tegracast/samples"
	a.must(t, "cp "+file+" /root/kept; echo '  - {name: samples, from: camera, share: {socket: "+socket+"}}' >> "+file+"; systemctl reload tegracast; "+
		"for i in $(seq 600); do [ -S "+socket+" ] && exit 0; sleep .1; done; exit 1")
	a.is(t, "stat -c '%U:%G %a %F' /run/tegracast "+socket, "tegracast:tegracast 755 directory\ntegracast:tegracast 660 socket\n")
	const as = "setpriv --reuid nobody --clear-groups --regid "
	a.must(t, "timeout 120 "+as+"tegracast "+shareClient+" "+socket+" 2>&1 | head -n 5 > /root/taken")
	a.is(t, "grep -c '^samples: frame [0-9]*, RG10 320x240.*: mean ' /root/taken || cat /root/taken", "5\n")
	a.is(t, as+"nogroup "+shareClient+" "+socket+" 2>&1 | grep -c 'permission denied$'", "1\n")
	a.is(t, "ls -l /proc/$(systemctl show -P MainPID tegracast)/fd | grep -c memfd:tegracast-frames | grep -cv '^0$'", "1\n")
	a.must(t, "cp /root/kept "+file+"; systemctl reload tegracast; for i in $(seq 600); do [ -e "+socket+" ] || exit 0; sleep .1; done; exit 1")
	a.back(t, "without a consumer", time.Now())
	a.is(t, noErrors, "")
}
