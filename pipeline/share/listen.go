// SPDX-License-Identifier: Apache-2.0

package share

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// maxPath is the maximum length of a Unix socket's path in bytes (unix(7)), without the terminating zero.
const maxPath = 107

// CheckSocket returns an error unless path is valid as the path of a socket.
func CheckSocket(path string) error {
	if path == "" || len(path) > maxPath || path[0] != '/' {
		return fmt.Errorf("%q: write a path that begins with / and has at most %d bytes, such as /run/tegracast/frames", path, maxPath)
	}
	return nil
}

// checkSocket returns an error unless the configuration has a valid path, or none and is that of a stage.
func (c *Config) checkSocket() error {
	if c.Socket == "" && c.answers != nil {
		return nil
	}
	return CheckSocket(c.Socket)
}

// may reports whether a process may have the frames. If no users or groups are configured, every process that can
// connect may.
func (c *Config) may(who *unix.Ucred) bool {
	return len(c.Users)+len(c.Groups) == 0 || slices.Contains(c.Users, who.Uid) || slices.Contains(c.Groups, who.Gid)
}
