// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"fmt"

	"github.com/tegracast/tegracast/cmd/tegracast/lines"
	"github.com/tegracast/tegracast/cmd/tegracast/streams"
	"github.com/tegracast/tegracast/cmd/tegracast/telemetry"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/group"
)

// status describes the appliance for a terminal or the log.
type status struct {
	stats   func() pipeline.Stats
	page    func() *string // the page's address; nil: no page
	flows   *flows
	streams *streams.Set
	ucx     *ucxOutputs
	shares  *sharedOutputs
	bus     *telemetry.Bus
	lines   *lines.Lines
	clocks  func() []cardClock
	groups  *group.Set
}

// view returns the state, with the addresses where the appliance can be watched.
func (s *status) view() terminal.View {
	takers := append(s.ucx.consumers(), s.shares.consumers()...)
	v := terminal.View{
		Stats: s.stats(), Receivers: s.streams.Receivers(), Quarantine: s.flows.quarantined(),
		Readers: s.streams.Status() + describeConsumers(takers) + s.bus.Status(), Lines: lines.Status(s.lines.Books()),
		Takers: map[string]string{},
	}
	for _, t := range takers {
		v.Takers[t.Output] = t.String()
	}
	for _, b := range s.groups.Books() {
		v.Loops = append(v.Loops, b.String())
	}
	for _, l := range s.flows.loops() {
		v.Loops = append(v.Loops, l.String())
	}
	for _, c := range s.clocks() {
		v.Loops = append(v.Loops, c.String())
	}
	for _, x := range s.flows.externals() {
		v.Loops = append(v.Loops, x.String())
	}
	for _, x := range s.flows.models() {
		v.Loops = append(v.Loops, x.String())
	}
	if page := s.page(); page != nil {
		v.Addresses = append(v.Addresses, "page: "+*page)
	}
	for _, x := range s.flows.streams() {
		if url := s.streams.URL(x.name); url != "" {
			v.Addresses = append(v.Addresses, fmt.Sprintf("%s: ffplay -fflags nobuffer %s", x.name, url))
		}
	}
	return v
}
