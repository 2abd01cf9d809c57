// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"io/fs"
	"strings"

	"github.com/tegracast/tegracast/tegra/uapi"
)

// grade is how bad a finding is.
type grade string

const (
	isGood    grade = "good"
	isNote    grade = "note"    // what there is, without judgement
	isWarning grade = "warning" // it works, not as well as it could
	isMissing grade = "missing" // it does not work without
)

// finding is one thing that was looked at.
type finding struct {
	What    string `json:"what"`
	Grade   grade  `json:"grade"`
	Detail  string `json:"detail"`
	Command string `json:"command,omitempty"` // that fixes it, for a shell of root
}

// patient is the machine that is looked at: its files, and what files do not tell.
type patient struct {
	root         fs.FS
	user         string                               // who looks
	synchronised func() bool                          // the clock is
	open         func(path string) error              // opens a device of the kernel module
	info         func(path string) (uapi.Info, error) // asks the module what a device of its is
	kernelLog    func() string                        // what the kernel has said since boot; empty when it may not be read
}

// text is a file's, without spaces around it; empty when it cannot be read.
func (p patient) text(name string) string {
	b, err := fs.ReadFile(p.root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (p patient) exists(name string) bool {
	_, err := fs.Stat(p.root, name)
	return err == nil
}
