// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"fmt"

	"github.com/tegracast/tegracast/cmd/tegracast/fanout"
	"github.com/tegracast/tegracast/cmd/tegracast/lines"
	"github.com/tegracast/tegracast/cmd/tegracast/live"
)

// view is how the appliance is doing.
func (a *Appliance) view() live.View {
	takers := append(a.fanout.Takers(), a.shares.Takers()...)
	v := live.View{
		Stats: a.stats(), Receivers: a.egress.Receivers(), Quarantine: a.leftOut(),
		Readers: a.egress.Status() + fanout.Status(takers) + a.env.Bus.Status(), Lines: lines.Status(a.lines.Books()),
		Takers: map[string]string{},
	}
	for _, t := range takers {
		v.Takers[t.Output] = t.String()
	}
	for _, c := range a.controllers() {
		v.Loops = append(v.Loops, c.String())
	}
	return v
}

// view is the appliance's, with where it can be watched.
func (r *runner) view() live.View {
	v := r.a.view()
	if page := r.web.Page.Load(); page != nil {
		v.Addresses = append(v.Addresses, "page: "+*page)
	}
	for _, s := range r.a.streams() {
		if url := r.a.egress.URL(s.name); url != "" {
			v.Addresses = append(v.Addresses, fmt.Sprintf("%s: ffplay -fflags nobuffer %s", s.name, url))
		}
	}
	return v
}
