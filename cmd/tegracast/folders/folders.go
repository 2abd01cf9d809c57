// SPDX-License-Identifier: Apache-2.0

// Package folders returns the folders in which the program keeps files.
package folders

import (
	"os"
	"path/filepath"
	"strings"
)

// State returns the service manager's state folder (systemd.exec(5)), or "".
func State() string { return first("STATE_DIRECTORY") }

// Runtime returns the service manager's runtime folder (systemd.exec(5)), or "".
func Runtime() string { return first("RUNTIME_DIRECTORY") }

// StateOrUser returns the service manager's state folder, else the user's (XDG Base Directory Specification), or "".
func StateOrUser() string {
	if dir := State(); dir != "" {
		return dir
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "tegracast")
	}
	if home, err := os.UserHomeDir(); err == nil {
		return filepath.Join(home, ".local", "state", "tegracast")
	}
	return ""
}

// first returns the first folder of the list in an environment variable, which the service manager sets, or "".
func first(variable string) string {
	dir, _, _ := strings.Cut(os.Getenv(variable), ":")
	return dir
}
