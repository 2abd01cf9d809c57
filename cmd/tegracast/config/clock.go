// SPDX-License-Identifier: Apache-2.0

package config

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
)

// Clock is the clock that the clocks of the cameras follow.
type Clock struct {
	Source string `yaml:"source" jsonschema:"pattern=^(system|phc:/.+)$" jsonschema_description:"phc:/dev/ptp0: the clock of a network adapter, which PTP sets to TAI (ptp4l). system: this machine's clock."`
}

// phcPrefix precedes the device file of a network adapter's clock.
const phcPrefix = "phc:"

// PHC returns the device file of the network adapter's clock, or false if the source is this machine's clock.
func (c *Clock) PHC() (path string, is bool) { return strings.CutPrefix(c.Source, phcPrefix) }

// check refuses invalid values, and a clock that no source can follow.
func (c *Clock) check(r *resolver, at yamlfile.Section) error {
	path, is := c.PHC()
	switch {
	case is && !filepath.IsAbs(path), !is && c.Source != "system":
		return at.Key("source").Errorf("%q: write system, or phc: and a device file, such as phc:/dev/ptp0", c.Source)
	case !slices.ContainsFunc(r.out.Sources, func(s Source) bool { return s.Card.Name != "" && !s.Bare }):
		return at.Errorf("no source has a clock that can follow: files have none, nor have bare streams; leave clock out")
	}
	return nil
}
