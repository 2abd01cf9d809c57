// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"bytes"
	"errors"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
)

// pageText is the name that errors give, instead of a file's, to the text from the page's editor.
const pageText = "configuration"

// A Check is the result of checking or applying a configuration: its mistakes, or the changes.
type Check struct {
	Good     bool
	Mistakes []yamlfile.Mistake // in the order of the text
	Changed  []string           // what was changed, such as outputs[raw].rtp.mtu
	Warning  string             // why a restart will not use the new configuration; empty: it will
}

// Check parses and checks the text from the page's editor, and returns its configuration, or all mistakes. page is the
// section web that is in use, and shown is the text that the page displays. The text's section web must equal page,
// because a client that may only connect from this machine must not open the page to others, and a page that closed
// itself could not answer. It may also equal the section in shown: otherwise a text that was stored before the
// installed file's section web changed could not be edited.
func (s ConfigStore) Check(text []byte, page config.Web, shown string) (*config.Appliance, Check) {
	installed, err := config.Load(s.Installed)
	if err != nil {
		installed = &config.Appliance{} // it has a mistake now, and allows no models
	}
	c, err := s.parse(pageText, text, installed)
	if err == nil && !c.Web.Equal(page) && !saysWeb(shown, c.Web) {
		err = yamlfile.At(pageText, lineOfWeb(text), "web").Errorf(
			"the page cannot change its own section web: write that into the installed file, and reload")
	}
	check := Check{Good: err == nil}
	var wrong *yamlfile.Error
	if errors.As(err, &wrong) {
		for _, m := range wrong.All() {
			check.Mistakes = append(check.Mistakes, m.Mistake())
		}
	}
	return c, check
}

// saysWeb reports whether a text is a valid configuration with the given section web.
func saysWeb(text string, section config.Web) bool {
	c, err := config.Parse(pageText, []byte(text))
	return err == nil && c.Web.Equal(section)
}

// lineOfWeb returns the line number of the key web, or 1 if there is none.
func lineOfWeb(text []byte) int {
	for i, line := range bytes.Split(text, []byte("\n")) {
		if bytes.HasPrefix(line, []byte("web:")) {
			return i + 1
		}
	}
	return 1
}
