// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"os"

	"github.com/tegracast/tegracast/board"
	"github.com/tegracast/tegracast/cmd/tegracast/telemetry"
	"github.com/tegracast/tegracast/pipeline/bus"
)

// published returns what the message bus publishes about the appliance.
func (a *Appliance) published() telemetry.Appliance {
	return telemetry.Appliance{
		Version: a.env.Version, Model: board.Identify(os.DirFS("/")).Model, Stats: a.reports.stats, Health: a.state,
		Outputs: func() (list []bus.OutputHealth) { // without counters
			for _, o := range a.reports.outputs() {
				list = append(list, bus.OutputHealth{Name: o.Name, Sends: o.Sends, To: o.To, RTSP: o.RTSP})
			}
			return list
		},
	}
}
