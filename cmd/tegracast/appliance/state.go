// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"os"
	"path/filepath"

	"github.com/tegracast/tegracast/cmd/tegracast/folders"
)

// kernelCache returns the folder of compiled kernels, in the service's state or the user's cache, or "" if there is
// neither.
func kernelCache() string { return stateOrCache("kernels", "") }

// quarantineFolder returns the folder that records the kernels that have broken the GPU, in the service's state or the
// user's cache, or "" if there is neither.
func quarantineFolder() string { return stateOrCache("quarantine", "quarantine") }

// stateOrCache returns the folder state in the service's state, else the folder cache in tegracast's part of the user's
// cache, or "" if there is neither.
func stateOrCache(state, cache string) string {
	if dir := folders.State(); dir != "" {
		return filepath.Join(dir, state)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "tegracast", cache)
}
