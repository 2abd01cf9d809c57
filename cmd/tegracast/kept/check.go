// SPDX-License-Identifier: Apache-2.0

package kept

import (
	"bytes"
	"errors"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/config/readers"
	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/pipeline/web"
)

// pageText is what mistakes call the text of the page's editor.
const pageText = "configuration"

// Check reads the text of the page's editor, and returns all mistakes where there are some. page is how the page is reached now, shown the
// text that the page shows: the text must say one of both, or nobody could edit what was kept before the installed file's web has changed.
// Who may only look from this machine must not open the page to others, and an answer would not come from a page that is closed.
func (s Store) Check(text []byte, page readers.Web, shown string) (*config.Appliance, web.Check) {
	c, err := s.parse(pageText, text)
	if err == nil && c.Web != page && !saysWeb(shown, c.Web) {
		err = yamlfile.At(pageText, lineOfWeb(text), "web").Errorf(
			"the page cannot change how it is reached itself: write that into the installed file, and reload")
	}
	check := web.Check{Good: err == nil}
	var wrong *yamlfile.Error
	if errors.As(err, &wrong) {
		for _, m := range wrong.All() {
			check.Mistakes = append(check.Mistakes, web.Mistake(m.Mistake()))
		}
	}
	return c, check
}

// saysWeb says whether a text has that section web.
func saysWeb(text string, section readers.Web) bool {
	c, err := config.Parse(pageText, []byte(text))
	return err == nil && c.Web == section
}

// lineOfWeb is the line of the key web, or else the first one.
func lineOfWeb(text []byte) int {
	for i, line := range bytes.Split(text, []byte("\n")) {
		if bytes.HasPrefix(line, []byte("web:")) {
			return i + 1
		}
	}
	return 1
}
