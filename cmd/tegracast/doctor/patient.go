// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"io/fs"
	"strings"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/pipeline/videodev"
	"github.com/tegracast/tegracast/tegra/uapi"
)

// grade is the severity of a finding.
type grade string

const (
	isGood    grade = "good"
	isNote    grade = "note"    // neutral information
	isWarning grade = "warning" // it works, but not as well as possible
	isMissing grade = "missing" // no camera of a real FPGA works without it
)

// finding is the result of a check.
type finding struct {
	What    string `json:"what"`              // what was looked at
	Grade   grade  `json:"grade"`             // `good`, `note`, `warning` or `missing`
	Detail  string `json:"detail"`            // what was found
	Command string `json:"command,omitempty"` // shell command that fixes it, for root
}

// patient is the examined machine: its files, and information that files do not contain.
type patient struct {
	root         fs.FS
	user         string                                 // user who runs doctor
	synchronised func() bool                            // reports whether the clock is synchronised
	open         func(path string) error                // opens a device of the kernel module
	info         func(path string) (uapi.Info, error)   // returns the module's information about its device
	kernelLog    func() string                          // returns the kernel's log; empty: it cannot be read
	dumpVersions func(file string) (string, error)      // returns the versions of symbols that a module's file wants
	config       func() (*config.Appliance, error)      // returns the service's configuration
	videos       func() []videodev.Camera               // returns the cameras with drivers of the kernel; nil: none
	adapterTime  func(path string) (adapterTime, error) // reads the clock of a network adapter
	attempt      func(library string) (string, error)   // uses one of attempts, and returns what it says about itself
}

// text returns a file's content without surrounding spaces, or "" if it cannot be read.
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
