// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/memlock"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestLimitOfMemory checks that config check uses the limit in the drop-in of the installed service, and serve that of
// its own process: in the service it counts all memory that the service locks, elsewhere only what an FPGA needs pinned.
func TestLimitOfMemory(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("NEEDS root: it hides this machine's units from the program")
	}
	dir := t.TempDir()
	samples := filepath.Join(dir, "samples.raw")
	if err := os.WriteFile(samples, make([]byte, 320*240*2), 0o600); err != nil {
		t.Fatal(err)
	}
	const text = `memory: host
web: {listen: none}
sources: [{name: camera, slots: 9, %s}]
isp: [{name: isp}]
outputs: [{name: raw, rtp: {payload: raw, destinations: ["127.0.0.1:%d"]}}]
`
	port := rtptest.EvenPorts(t, 1)[0]
	file := programtest.Write(t, "file.yaml", fmt.Sprintf(text, fmt.Sprintf("file: {path: %q, width: 320, height: 240, once: true}", samples), port))
	fpga := programtest.Write(t, "fpga.yaml", fmt.Sprintf(text, "fpga: {device: /dev/no_such_device, width: 320, height: 240}", port))
	const (
		units = "mount -t tmpfs tmpfs /etc/systemd/system && mkdir /etc/systemd/system/tegracast.service.d; "
		check = "$0 config check $1"
		serve = "cd $2; exec setpriv --bounding-set -ipc_lock prlimit --memlock=65536 $0 serve --exit-at-end --config $1"
		line  = ":3:33: sources[0].slots: its 9 slots need "
	)
	dropIn := func(value string) string {
		return units + "printf '[Service]\nLimitMEMLOCK=" + value + "\n' > " + memlock.DropIn + "; "
	}
	for _, c := range []struct {
		name, shell, config string
		status              int
		says                string
	}{
		{"no drop-in", units + check, file, exitOK, ""},
		{"a drop-in", dropIn("1M") + check, file, exitUsage, file + line + "1404 KiB of memory that is locked, and all slots 2340 KiB: " +
			"the limit is 1024 KiB (LimitMEMLOCK= in " + memlock.DropIn + "): give it fewer slots, or raise LimitMEMLOCK="},
		{"a drop-in that suffices", dropIn("4M") + check, file, exitOK, ""},
		{"a drop-in with a mistake", dropIn("half") + check, file, exitFailure, memlock.DropIn + ":2: LimitMEMLOCK=half"},
		{"a file in a shell", serve, file, exitOK, "frame memory is not locked"},
		{"an FPGA in a shell", serve, fpga, exitUsage, fpga + line + "1626 KiB of memory that is pinned for FPGAs, and all slots 1626 KiB: " +
			"the limit is 64 KiB (ulimit -l of this process)"},
		{
			"the service", "export STATE_DIRECTORY=$2; " + serve, file, exitUsage,
			"the limit is 64 KiB (LimitMEMLOCK= of the service): give it fewer slots, or raise LimitMEMLOCK= in " + memlock.DropIn,
		},
	} {
		p := programtest.StartCommand(t, exec.Command("unshare", "--mount", "sh", "-c", c.shell, programtest.Program(t), c.config, dir))
		if status := p.Wait(t, time.Minute); status != c.status || !strings.Contains(p.Err.String(), c.says) {
			t.Errorf("%s: status %d, want %d and %q\n%s", c.name, status, c.status, c.says, p.Err.String())
		}
	}
}
