// SPDX-License-Identifier: Apache-2.0

package lines

import (
	"maps"
	"slices"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/pipeline/web"
)

// View is what the page shows of the lines.
func (p *Lines) View() (list []web.Line) {
	all := p.Books()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		b := all[name]
		x := web.Line{
			Name: name, Where: b.Where, Output: b.Output, On: b.On, Pulses: b.Pulses, Missed: b.Missed, Errors: b.Errors,
			Edges: b.Match.Edges, Lost: b.Lost, Matched: b.Match.Matched,
		}
		if name == config.PPSLine {
			x.Offset = b.PPS.Nanoseconds()
		}
		list = append(list, x)
	}
	return list
}
