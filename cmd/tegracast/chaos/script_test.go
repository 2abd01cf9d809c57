// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// A step of a script injects or removes a fault at a time since the start, or ends what came before.
type step struct {
	at    time.Duration
	what  act
	fault int // index in the list of faults, for take and give
}

// act is the action of a step.
type act uint8

const (
	give act = iota // before take if both have the same time
	take
	terminate // SIGTERM, and a start with the faults in force
	calm      // all faults are removed, and everything must run
	finish    // the final SIGTERM
)

// A phase is a part of a script with faults, and its end.
type phase struct {
	length time.Duration
	end    act
}

// phasesOf returns the phases of a run. Half of them end with SIGTERM.
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

// pace determines the rate of faults.
type pace struct {
	pause   time.Duration // maximum time from one to the next
	longest time.Duration // maximum duration of a fault
	most    int           // maximum number of faults at a time
}

// write makes the script of a seed. It depends on nothing else. The faults in force when the service is stopped stay in
// force, and those in force at the end are removed after it.
func write(rng *rand.Rand, faults []fault, phases []phase, p pace) (script []step) {
	now, end := time.Duration(0), time.Duration(0)
	free := map[string]time.Duration{} // when each resource is restored
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
			for i := range script { // all faults are removed then
				script[i].at = min(script[i].at, end)
			}
			clear(free)
		}
	}
	slices.SortStableFunc(script, func(a, b step) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.what, b.what)) })
	return script
}

// show returns the script as text.
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
