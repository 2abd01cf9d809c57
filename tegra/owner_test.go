// SPDX-License-Identifier: Apache-2.0

package tegra

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"testing/fstest"
)

func TestOwners(t *testing.T) {
	root := fstest.MapFS{
		"sys/class/tegra_p2p/tegra_p2p0/owners": {Data: []byte("812 998\n4021 0\n77 0\n0 998\n")},
		"proc/812/cgroup":                       {Data: []byte("0::/system.slice/tegracast.service\n")},
		"proc/812/comm":                         {Data: []byte("tegracast\n")},
		"proc/4021/cgroup":                      {Data: []byte("0::/user.slice/user-0.slice/session-3.scope\n")},
		"proc/4021/comm":                        {Data: []byte("loopback\n")},
		"sys/class/tegra_p2p/tegra_p2p1/owners": {},
		"sys/class/tegra_p2p/tegra_p2p2/owners": {Data: []byte("nobody\n")},
	}
	list, err := Owners(root, "/dev/tegra_p2p0")
	if got := fmt.Sprint(list); err != nil || got != "[tegracast.service (pid 812) loopback (pid 4021) pid 77 a process that was given the open file]" {
		t.Errorf("%s, %v", got, err)
	}
	if list, err := Owners(root, "/dev/tegra_p2p1"); err != nil || len(list) != 0 {
		t.Errorf("nobody: %v, %v", list, err)
	}
	if _, err := Owners(root, "/dev/tegra_p2p2"); err == nil {
		t.Error("text that names no process is no error")
	}
	if _, err := Owners(root, "/dev/tegra_p2p9"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
