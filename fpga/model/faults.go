// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tegracast/tegracast/fpga"
)

// FaultID is one of the twelve things that go wrong with such devices in the field.
//
// Each stream frame and each transfer of another channel is an opportunity for every fault. Opportunities are numbered:
// a camera's frames from 0 in the order in which its sensor has taken them since the device was created, the frames of
// a frame sink as they arrive, those of a Design as their packets begin, and transfers by the rising edges of the
// channel's Run. No restart or reset sets a number back. A frame that is dropped at the source uses up its opportunity.
// Faults "within" the opportunity strike at a place derived from the seed: a beat of a camera's frame,
// otherwise the middle of one of the descriptors of the first adjacent block.
//
//	F1   DMA time-out      within: no progress, no interrupt, Busy stays set, until Run is cleared
//	F2   slow stop         the next time the engine stops, Busy stays set for 2 to 8 ms after Run was cleared, and the
//	                       engine continues to write (H2C: read) its last descriptor
//	F3   stuck busy        the next time the engine stops, Busy stays set until the device is reset; nothing moves
//	F4   link loss         within: all registers read as all ones, writes vanish, no DMA, no interrupts for 3 to 8 frame
//	                       periods, one time in 16 forever; then the device is in its reset state
//	F5   corrupt fetch     a descriptor arrives with a wrong magic: magic_stopped
//	F6   write-back        the frame's last stream write-back, or the next poll-mode one, is in turn late by 1 to 4 ms;
//	                       preceded by an earlier value; written before the data that it announces (poll mode: twice,
//	                       with an earlier value in between). Busy stays set until the correct value was written
//	F7   interrupt         the next message of the channel is in turn lost; sent twice; late by 1 to 4 ms; or the
//	                       request stays until mask or enable bit have been cleared
//	F8   packet            cameras, but not Designs; in turn: truncated, with an end; without an end; after an empty packet
//	F9   credits           streams in credit mode; in turn: the next write of credits is lost (any channel); the completed
//	                       count starts 64 before its 32-bit wrap (at the start of a run, for the next frame)
//	F10  stray burst       within: up to 256 bytes go to an unmapped address. Writes are posted: only the SMMU notices,
//	                       and the correct destination keeps its old contents. Reads end in read_error
//	F11  revocation        within: FaultPlan.Revoke is called, and the engine waits for its return, but at most 2 ms
//	F12  reset             within: all registers go to their reset values at once and stay readable
//
// "In turn" is determined by the seed, and for Inject by the number of calls. A fault that cannot occur during its
// opportunity (such as F7 without a message) waits for the next one.
type FaultID int

// The rows of the fault matrix.
const (
	F1 FaultID = 1 + iota
	F2
	F3
	F4
	F5
	F6
	F7
	F8
	F9
	F10
	F11
	F12
	faultIDs // one more than the last
)

// ErrFault is wrapped by errors about fault ids, rates and plans.
var ErrFault = errors.New("bad fault")

// FaultIDs lists F1 to F12.
func FaultIDs() []FaultID {
	list := make([]FaultID, 0, faultIDs-1)
	for id := F1; id < faultIDs; id++ {
		list = append(list, id)
	}
	return list
}

func (id FaultID) String() string { return "F" + strconv.Itoa(int(id)) }

// ParseFaultID parses F1 to F12.
func ParseFaultID(s string) (FaultID, error) {
	number, ok := strings.CutPrefix(s, "F")
	n, err := strconv.ParseUint(number, 10, 8)
	if !ok || err != nil || n < uint64(F1) || n >= uint64(faultIDs) || number[0] == '0' {
		return 0, fmt.Errorf("%w: %q, want F1 to F%d", ErrFault, s, faultIDs-1)
	}
	return FaultID(n), nil
}

// ParseFault parses an id and a rate, such as F3:0.01 for once in a hundred opportunities.
func ParseFault(s string) (FaultID, float64, error) {
	name, number, ok := strings.Cut(s, ":")
	id, err := ParseFaultID(name)
	if err != nil {
		return 0, 0, err
	}
	rate, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(rate >= 0 && rate <= 1) {
		return 0, 0, fmt.Errorf("%w: rate of %q: want a number from 0 to 1 after the colon, like %v:0.01", ErrFault, s, id)
	}
	return id, rate, nil
}

// FaultPlan says which faults happen by themselves.
type FaultPlan struct {
	Seed  uint64              // of the pseudorandom numbers
	Rates map[FaultID]float64 // share of the opportunities at which the fault happens, 0 to 1

	// At is the byte of a camera's frame at which faults within it strike, a multiple of BeatBytes; F6, F7 and F9's
	// lost credits can occur only from there on. With 0, the places are derived from the seed, and faults can occur
	// anywhere.
	At int

	// Revoke takes memory away from the device (F11); only the memory's owner can do that. It is called on a separate
	// goroutine, and Run does not return before it has returned. If it is nil, F11 cannot happen.
	Revoke func()
}

func (p *FaultPlan) check() error {
	if p.At < 0 || p.At%BeatBytes != 0 {
		return fmt.Errorf("%w: at byte %d, want a multiple of %d", ErrFault, p.At, BeatBytes)
	}
	for id, rate := range p.Rates {
		if id < F1 || id >= faultIDs {
			return fmt.Errorf("%w: id %d, want F1 to F%d", ErrFault, int(id), faultIDs-1)
		}
		if !(rate >= 0 && rate <= 1) {
			return fmt.Errorf("%w: %v at rate %g, want 0 to 1", ErrFault, id, rate)
		}
		if id == F11 && rate > 0 && p.Revoke == nil {
			return fmt.Errorf("%w: F11 needs FaultPlan.Revoke, which says how memory is revoked", ErrFault)
		}
	}
	return nil
}

// Schedule reports whether the plan has a fault at an opportunity of a channel. It is a pure function, and the device
// follows it however its goroutines are scheduled; Inject adds further faults.
func (p *FaultPlan) Schedule(id FaultID, dir fpga.Direction, channel int, opportunity uint64) bool {
	_, ok := p.draw(id, dir, channel, opportunity)
	return ok
}

// draw is Schedule, and also returns a random number, from which variant, times and places of the fault are derived.
func (p *FaultPlan) draw(id FaultID, dir fpga.Direction, channel int, opportunity uint64) (roll uint64, ok bool) {
	rate := p.Rates[id]
	if rate == 0 {
		return 0, false
	}
	h := p.hash(uint64(id), uint64(dir), uint64(channel), opportunity)
	return mix(h), float64(h>>11) < rate*(1<<53)
}

// place returns the byte at which a fault strikes within a frame of size bytes: At, but at most the start of the last
// beat, or if At is 0 the start of any beat but the first.
func (p *FaultPlan) place(roll uint64, size int) int {
	if p.At > 0 {
		return min(p.At, size-BeatBytes)
	}
	return BeatBytes * (1 + int(roll%uint64(size/BeatBytes-1)))
}

func (p *FaultPlan) hash(words ...uint64) uint64 {
	h := mix(p.Seed)
	for _, w := range words {
		h = mix(h ^ mix(w))
	}
	return h
}

// mix is the output function of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// maxFaultLog limits the number of events that FaultLog returns; they are the latest.
const maxFaultLog = 4096

// FaultEvent is a fault that has happened.
type FaultEvent struct {
	ID          FaultID
	Direction   fpga.Direction
	Channel     int
	Opportunity uint64 // number of the frame or transfer for which it was drawn
	What        string // description of what happened
}

func (e FaultEvent) String() string {
	return fmt.Sprintf("%v %v %d #%d: %s", e.ID, e.Direction, e.Channel, e.Opportunity, e.What)
}

// FaultLog returns the most recent faults that have happened, at most 4,096, the oldest first.
func (d *Device) FaultLog() []FaultEvent {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.faults.log[max(0, len(d.faults.log)-maxFaultLog):])
}

// FaultCounts returns how often each fault has happened. Faults that have not happened are not in the map.
func (d *Device) FaultCounts() map[FaultID]uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	counts := make(map[FaultID]uint64)
	for id, n := range d.faults.counts {
		if n > 0 {
			counts[FaultID(id)] = n
		}
	}
	return counts
}
