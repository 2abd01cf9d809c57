// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/tegracast/tegracast/pipeline/videodev"
)

// mostOffers is the number of formats of a camera that are told; UVC cameras have few, capture cards dozens.
const mostOffers = 8

// cameras tells for each camera with a driver of the kernel what it offers, and who holds it.
func (p patient) cameras() (list []finding) {
	if p.videos == nil {
		return nil
	}
	for _, c := range p.videos() {
		list = append(list, cameraFinding(c))
	}
	return list
}

func cameraFinding(c videodev.Camera) finding {
	about := fmt.Sprintf("%s: %s, driver %s", c.Path, c.About.Card, c.About.Driver)
	var names []string
	for _, h := range c.Holders {
		names = append(names, h.String())
	}
	held := ""
	if len(names) > 0 {
		held = ". Held by " + strings.Join(names, ", ")
	}
	switch {
	case errors.Is(c.Err, fs.ErrPermission):
		return finding{"camera", isWarning, c.Path + ": this user may not open it", "usermod -a -G video tegracast"}
	case c.Err != nil:
		return finding{"camera", isWarning, c.Path + ": " + c.Err.Error() + held, ""}
	case len(c.Offers) == 0:
		return finding{"camera", isWarning, about + ", offers no format: its media graph may have no sensor", ""}
	}
	offers := c.Offers[:min(len(c.Offers), mostOffers)]
	about += ": " + strings.Join(offers, " | ")
	if left := len(c.Offers) - len(offers); left > 0 {
		about += fmt.Sprintf(" | and %d more formats", left)
	}
	if held == "" {
		return finding{"camera", isGood, about, ""}
	}
	return finding{"camera", isNote, about + held, ""}
}
