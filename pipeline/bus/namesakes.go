// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	namesakeTime  = time.Minute // how long another board counts after its last message; boards publish every 10 s
	mostNamesakes = 16          // at a time; others are ignored
	mostUnwatched = 2
)

func (p *Publisher) hexID() string { return fmt.Sprintf("%016x", p.id) }

// see parses the health that somebody published under this board's name, and logs it once for each board that is not
// this one.
func (p *Publisher) see(data []byte) {
	h, err := parseHealth(prefix+p.config.Board+health, data)
	if err != nil || h.Ended || len(h.ID) != 16 || h.ID == p.hexID() {
		return
	}
	p.mu.Lock()
	now := time.Now()
	if len(p.others) == mostNamesakes {
		maps.DeleteFunc(p.others, func(_ string, at time.Time) bool { return now.Sub(at) >= namesakeTime })
	}
	_, known := p.others[h.ID]
	room := known || len(p.others) < mostNamesakes
	if room {
		p.others[h.ID] = now
	}
	p.mu.Unlock()
	if room && !known { // without the lock: log records may be published as events
		p.config.Logger.Warn("another board publishes on the bus under this board's name: give each a name of its own (bus.board)",
			"board", p.config.Board, "id", p.hexID(), "other", h.ID)
	}
}

// namesakes returns the IDs of the other boards that publish under this board's name, sorted.
func (p *Publisher) namesakes(now time.Time) (ids []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, at := range p.others {
		if now.Sub(at) < namesakeTime {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
