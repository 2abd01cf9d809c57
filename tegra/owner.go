// SPDX-License-Identifier: Apache-2.0

package tegra

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Owner is a process that has opened a device file for writing.
type Owner struct {
	PID  int    // 0: it has ended, and another process has inherited the file
	Name string // its systemd service, otherwise its command; "" if it has ended or is hidden
}

func (o Owner) String() string {
	switch {
	case o.PID == 0:
		return "a process that was given the open file"
	case o.Name == "":
		return fmt.Sprintf("pid %d", o.PID)
	}
	return fmt.Sprintf("%s (pid %d)", o.Name, o.PID)
}

// Owners returns the processes that have opened a device file of the module, such as /dev/tegra_p2p0, for writing, in
// the order of opening. It does not open the file itself. root is the machine's root directory. The error wraps
// fs.ErrNotExist if there is no such device.
func Owners(root fs.FS, device string) ([]Owner, error) {
	b, err := fs.ReadFile(root, "sys/class/tegra_p2p/"+path.Base(device)+"/owners")
	if err != nil {
		return nil, fmt.Errorf("owners of %s: %w", device, err)
	}
	var list []Owner
	for line := range strings.Lines(string(b)) {
		var pid, uid int
		if _, err := fmt.Sscan(line, &pid, &uid); err != nil {
			return nil, fmt.Errorf("owners of %s: %q: want a process and a user", device, line)
		}
		o := Owner{PID: pid}
		if pid != 0 {
			o.Name = processName(root, pid)
		}
		list = append(list, o)
	}
	return list, nil
}

// processName returns the name of a process's systemd service, or otherwise of its command, or "" if neither is known.
func processName(root fs.FS, pid int) string {
	cgroup, _ := fs.ReadFile(root, fmt.Sprintf("proc/%d/cgroup", pid))
	for line := range strings.Lines(string(cgroup)) {
		if unit := path.Base(strings.TrimSpace(line)); strings.HasSuffix(unit, ".service") {
			return unit
		}
	}
	comm, _ := fs.ReadFile(root, fmt.Sprintf("proc/%d/comm", pid))
	return strings.TrimSpace(string(comm))
}

// inUse names the other process that has opened a device file and the command that stops it, or says how to find the
// process, for an error message.
func inUse(device string) string {
	if real, err := filepath.EvalSymlinks(device); err == nil {
		device = real
	}
	list, _ := Owners(os.DirFS("/"), device)
	for _, o := range list {
		switch {
		case o.PID == os.Getpid() || o.PID == 0:
		case strings.HasSuffix(o.Name, ".service"):
			return fmt.Sprintf("in use by %v; systemctl stop %s", o, strings.TrimSuffix(o.Name, ".service"))
		default:
			return fmt.Sprintf("in use by %v; kill %d stops it", o, o.PID)
		}
	}
	return "in use by another process; sudo fuser -v " + device + " names it"
}
