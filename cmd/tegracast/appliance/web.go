// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tegracast/tegracast/board"
	"github.com/tegracast/tegracast/cmd/tegracast/boardwatch"
	"github.com/tegracast/tegracast/cmd/tegracast/control"
	"github.com/tegracast/tegracast/cmd/tegracast/lines"
	"github.com/tegracast/tegracast/cmd/tegracast/progress"
	"github.com/tegracast/tegracast/cmd/tegracast/site"
	"github.com/tegracast/tegracast/cmd/tegracast/telemetry"
	"github.com/tegracast/tegracast/pipeline/record"
	"github.com/tegracast/tegracast/pipeline/web"
)

// newWeb is a server that tells of the appliance.
func newWeb(a *Appliance, h *progress.Watch) *site.Server {
	own := []prometheus.Collector{
		a.egress, &boardwatch.Metrics{Root: os.DirFS("/")}, &lines.Metrics{Lines: a.lines}, &hardwareMetrics{a}, &a.fanout, &a.shares, a.env.Bus,
	}
	trigger := func(output, cause string) (bool, error) {
		return a.recordings.Trigger(output, record.Trigger{Cause: cause})
	}
	return &site.Server{Out: a.env.Out, Config: web.Config{
		Version: a.env.Version, Stats: a.stats, Health: h.State, Outputs: a.list, Board: sensors, Bus: a.env.Bus.View,
		View: a.look, Still: a.still, Settings: control.Panels(a.panels), Lines: a.lines.View,
		SDP: a.describe, Trigger: trigger, Send: a.egress.Send, Unsend: a.egress.Unsend, WHEP: a.egress.WHEP(),
		Metrics: append(own, a.env.Metrics...), Events: a.env.Events, Logger: a.env.Log,
	}}
}

// told is what the bus tells of the appliance.
func (a *Appliance) told(h *progress.Watch) telemetry.Appliance {
	return telemetry.Appliance{
		Version: a.env.Version, Model: board.Identify(os.DirFS("/")).Model, Stats: a.stats, Health: h.State, Outputs: a.list, Sensors: sensors,
	}
}

// sensors are the board's, now.
func sensors() []web.Reading { return boardwatch.Readings(os.DirFS("/")) }
