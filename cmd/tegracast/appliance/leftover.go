// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"strings"

	"github.com/tegracast/tegracast/pipeline"
)

// unended names the sources and outputs that have not ended.
func (a *Appliance) unended() (list []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.flows {
		if f.done == nil || f.ended() {
			continue
		}
		list = append(list, "source "+f.name)
		for _, o := range f.outputs {
			if o.attached.Status().State != pipeline.Ended {
				list = append(list, "output "+o.name)
			}
		}
	}
	return list
}

// unheld is err, but for what is held because a recording waits for its disk: that has been told, and it is free when the disk answers.
func (a *Appliance) unheld(what string, err error) error {
	if err != nil && a.disks.Hanging() {
		text, _, _ := strings.Cut(err.Error(), "\n")
		a.env.Log.Warn("closed with errors, since a recording whose disk hangs holds frames: what is left is free with the process",
			"what", what, "error", text)
		return nil
	}
	return err
}
