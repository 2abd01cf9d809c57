// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// A step of a script takes something away or gives it back at a time since the beginning, or ends what came before.
type step struct {
	at    time.Duration
	what  act
	fault int // of the list of faults, for take and give
}

// act is what a step does.
type act uint8

const (
	give act = iota // before take, where both have the same time
	take
	terminate // SIGTERM, and a start with whatever is in force
	calm      // everything is given back, and must run
	finish    // SIGTERM for the last time
)

// A phase is a stretch of a script with faults, and how it ends.
type phase struct {
	length time.Duration
	end    act
}

// phasesOf are those of a run: half of the ends are SIGTERM.
func phasesOf(length time.Duration, rng *rand.Rand) (list []phase) {
	for left := length; left > 0; {
		p := phase{30*time.Second + time.Duration(rng.IntN(60))*time.Second, terminate}
		if len(list)%2 == 1 {
			p.end = calm
		}
		left -= p.length
		list = append(list, p)
	}
	return list
}

// pace is how a script takes things away.
type pace struct {
	pause   time.Duration // from one to the next, at most
	longest time.Duration // that something is in force
	most    int           // things at a time
}

// write makes the script of a seed: it depends on nothing else. Whatever is in force when the service is ended stays in force, and what is in force
// at the end is given back after it.
func write(rng *rand.Rand, faults []fault, phases []phase, p pace) (script []step) {
	now, end := time.Duration(0), time.Duration(0)
	free := map[string]time.Duration{} // when each of what can be taken away is there again
	for _, ph := range phases {
		for end += ph.length; ; {
			now += time.Duration(rng.Int64N(int64(p.pause)))
			if now >= end {
				break
			}
			inForce := 0
			for _, until := range free {
				if until > now {
					inForce++
				}
			}
			n := rng.IntN(len(faults))
			held := p.longest/8 + time.Duration(rng.Int64N(int64(p.longest*7/8)))
			if inForce >= p.most || free[faults[n].of] > now {
				continue
			}
			free[faults[n].of] = now + held
			script = append(script, step{now, take, n}, step{now + held, give, n})
		}
		now = end
		script = append(script, step{at: end, what: ph.end})
		if ph.end == calm {
			for i := range script { // all is given back then
				script[i].at = min(script[i].at, end)
			}
			clear(free)
		}
	}
	slices.SortStableFunc(script, func(a, b step) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.what, b.what)) })
	return script
}

// show is the script as a text.
func show(script []step, faults []fault) (lines []string) {
	for _, s := range script {
		name := map[act]string{take: "take ", give: "give ", terminate: "SIGTERM, and a start", calm: "everything is given back", finish: "SIGTERM"}[s.what]
		if s.what == take || s.what == give {
			name += faults[s.fault].String()
		}
		lines = append(lines, fmt.Sprintf("%8.3f  %s", s.at.Seconds(), name))
	}
	return lines
}
