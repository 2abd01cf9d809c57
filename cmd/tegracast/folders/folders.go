// SPDX-License-Identifier: Apache-2.0

// Package folders returns the folders in which the program keeps files.
package folders

import (
	"os"
	"path/filepath"
	"strings"
)

// State returns the state folder that the service manager has assigned (systemd.exec(5)), or "" if there is none.
func State() string { return first("STATE_DIRECTORY") }

// Runtime returns the runtime folder that the service manager has assigned (systemd.exec(5)), or "" if there is none.
func Runtime() string { return first("RUNTIME_DIRECTORY") }

// StateOrUser returns State, else the user's state folder for the program (XDG Base Directory Specification), or "" if
// the user's home directory is unknown.
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

// first returns the first folder of the list in an environment variable, or "" if the variable is empty or unset.
func first(variable string) string {
	dir, _, _ := strings.Cut(os.Getenv(variable), ":")
	return dir
}
