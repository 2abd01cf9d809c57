// SPDX-License-Identifier: Apache-2.0

package tegra

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// holder names the process that has a file open and is not this one, and says how to stop it; or how to find it, when this user may not
// look at the files of others.
func holder(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, link := range links {
		process := filepath.Dir(filepath.Dir(link))
		number := filepath.Base(process)
		if open, err := os.Readlink(link); err != nil || open != path || number == strconv.Itoa(os.Getpid()) {
			continue
		}
		name, err := os.ReadFile(filepath.Join(process, "comm"))
		if err != nil {
			continue // it has just ended
		}
		return fmt.Sprintf("process %s (%s); systemctl stop tegracast, if it is the service, else kill %[1]s", number, strings.TrimSpace(string(name)))
	}
	return "sudo fuser -v " + path + " names it"
}
