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

// Check reads the text of the page's editor, and returns all mistakes where there are some. page is how the page is reached now: the text
// must say the same. Who may only look from this machine must not open the page to others, and an answer would not come from a page that
// is closed.
func Check(text []byte, page readers.Web) (*config.Appliance, web.Check) {
	c, err := config.Parse(pageText, text)
	if err == nil && c.Web != page {
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

// lineOfWeb is the line of the key web, or else the first one.
func lineOfWeb(text []byte) int {
	for i, line := range bytes.Split(text, []byte("\n")) {
		if bytes.HasPrefix(line, []byte("web:")) {
			return i + 1
		}
	}
	return 1
}
