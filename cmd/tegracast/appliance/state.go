// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"os"
	"path/filepath"
	"strings"
)

// stateDir is the service manager's state directory (systemd.exec(5)); empty without one.
func stateDir() string {
	dir, _, _ := strings.Cut(os.Getenv("STATE_DIRECTORY"), ":")
	return dir
}

// kernelCache is the folder of compiled kernels: the service's state, or the user's cache; "" is none.
func kernelCache() string { return stateOrCache("kernels", "") }

// quarantineFolder is where kernels that have broken the GPU are kept: the service's state, or the user's cache.
func quarantineFolder() string { return stateOrCache("quarantine", "quarantine") }

// stateOrCache is a folder of the service's state, else one of the user's cache; "" where there is neither.
func stateOrCache(state, cache string) string {
	if dir := stateDir(); dir != "" {
		return filepath.Join(dir, state)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "tegracast", cache)
}
