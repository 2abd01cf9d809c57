// SPDX-License-Identifier: Apache-2.0

package group

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// noon is an instant of every whole rate.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// stereo is a group of two cameras with a rate of 100.
func stereo() Config {
	return Config{
		Name: "stereo", Sources: []string{"left", "right"}, Rate: pipeline.Rate{Num: 100, Den: 1}, Tolerance: time.Millisecond, Period: 10 * time.Millisecond,
	}
}

// check checks the sums of the books, and returns them.
func check(t *testing.T, g *Group, now time.Time) Books {
	t.Helper()
	g.mu.Lock()
	g.settle(now)
	for i := range g.members {
		m, waiting := &g.members[i], uint64(0)
		g.each(func(e *entry) {
			if e.state[i] == delivered {
				waiting++
			}
		})
		for k := range g.ring { // finished will count it
			if g.ring[k].state[i] == arriving {
				waiting++
			}
		}
		if sum := m.grouped + sum(m.other[:]) + waiting; sum != m.frames {
			t.Errorf("%s: %d frames, and %d of them counted: %+v", g.cfg.Sources[i], m.frames, sum, *m)
		}
		if m.grouped+sum(m.missing[:]) != g.complete+g.partial {
			t.Errorf("%s: in %d groups, missing in %v, of %d + %d groups", g.cfg.Sources[i], m.grouped, m.missing, g.complete, g.partial)
		}
	}
	if open := len(slices.DeleteFunc(slices.Clone(g.ring), func(e entry) bool { return !e.open })); open != g.open || g.span < open {
		t.Errorf("%d groups are open, %d counted in the newest %d", open, g.open, g.span)
	}
	g.mu.Unlock()
	return g.Books()
}

func sum(list []uint64) (n uint64) {
	for _, x := range list {
		n += x
	}
	return n
}

// TestBooksOfAGroup checks the books after short scripts. A word is the member L or R, the instant, and what happened:
// "!" lost, "#" damaged, both before this frame, "~" outside of the tolerance, "(" filling, ")" completed, "x" damaged
// while it was filling. "L." ends the member, "+" lets patience pass.
func TestBooksOfAGroup(t *testing.T) {
	list := [][2]string{
		{"L1 R1 L2 R2 R3 L3", "3 groups = complete 3 + incomplete 0"},
		{"L1 L2 R2 L3 R3", "2 groups = complete 2 + incomplete 0; frames of no group: left edge 1"},
		{"L1 R1 L2 L3 R3!", "3 groups = complete 2 + incomplete 1 (right lost 1)"},
		{"L1 R1 L2 L3 R3#", "3 groups = complete 2 + incomplete 1 (right damaged 1)"},
		{"L1 R1 L2 R2~ L3 R3", "3 groups = complete 2 + incomplete 1 (right outside 1); frames of no group: right outside 1"},
		{"L1 R1 L2 L3 R3", "3 groups = complete 2 + incomplete 1 (right absent 1)"},
		{"L1 R1 L2 +", "2 groups = complete 1 + incomplete 1 (right silent 1)"},
		{"L1 R1 L2 + R2 L3 R3", "3 groups = complete 2 + incomplete 1 (right silent 1); frames of no group: right late 1"},
		{"L1 R1 L2 R2 R2", "2 groups = complete 2 + incomplete 0; frames of no group: right duplicate 1"},
		{"L1 R1 L2( R2 L2)", "2 groups = complete 2 + incomplete 0"},
		{"L1 R1 L2( R2 L2x", "2 groups = complete 1 + incomplete 1 (left damaged 1); frames of no group: left damaged 1"},
		{"L1 R1 L2( R2 + L2) L3 R3", "3 groups = complete 2 + incomplete 1 (left late 1); frames of no group: left late 1"},
		{"L1 R1 L2( R2 + L2x L3 R3", "3 groups = complete 2 + incomplete 1 (left late 1); frames of no group: left damaged 1"},
		{"L1 R1 R. L2 L3 R4 L4", "4 groups = complete 2 + incomplete 2 (right stopped 2)"},
		{"L1 R1 R. L2 + L3 R3", "3 groups = complete 2 + incomplete 1 (right stopped 1)"},
		{"L1 R1 L2 L. R2 R.", "2 groups = complete 2 + incomplete 0"},
		{"L1 R1 L2 R. L.", "1 groups = complete 1 + incomplete 0; frames of no group: left edge 1"},
		{"L1 R1 L2 R. L. L5 L6 R6 L7 R7", "3 groups = complete 3 + incomplete 0; frames of no group: left edge 2"},
		{"L1 L2 + L3 +", "3 groups = complete 0 + incomplete 3 (right stopped 3)"},
		{"L1 R1~ L2 R2~ L3 R3~ L4 R4~ +", "4 groups = complete 0 + incomplete 4 (right outside 3, right stopped 1); frames of no group: right outside 4"},
		{"L1 R1 L2 R2! R. L3 R3 L4 R5 L5", "5 groups = complete 4 + incomplete 1 (right absent 1)"}, // what was lost before the end is forgotten
		{"L1 R1 L9 R9 L5 R5", "3 groups = complete 3 + incomplete 0"},
		{"L1 R1 L2 R2 L3 R3 L2 R2 L3 R3", "5 groups = complete 5 + incomplete 0"}, // the clock has stepped back
		{"L1 R1 R3 R2 L2 L3", "3 groups = complete 3 + incomplete 0"},
	}
	for _, rate := range []bool{true, false} {
		for _, x := range list {
			cfg := stereo()
			if !rate {
				cfg.Rate = pipeline.Rate{}
				if strings.Contains(x[0], "~") { // without instants it would be the first of a group
					continue
				}
			}
			g := New(cfg)
			now, numbers := noon, [2]uint64{}
			for _, word := range strings.Fields(x[0]) {
				if word == "+" {
					now = now.Add(g.patience + 1)
					check(t, g, now)
					continue
				}
				i, n, what := strings.IndexByte("LR", word[0]), 0, word[1:]
				if what == "." {
					g.ended(i)
					continue
				}
				_, _ = fmt.Sscanf(what, "%d%s", &n, &what)
				at := noon.Add(time.Duration(10*n) * time.Millisecond)
				is := func(s string) uint64 { return uint64(strings.Count(what, s)) }
				switch {
				case is(")")+is("x") > 0:
					g.finished(i, numbers[i], is("x") > 0, now)
				case is("~") > 0:
					at = at.Add(2 * cfg.Tolerance)
					fallthrough
				default:
					numbers[i] = g.take(i, at.Add(time.Duration(i)*cfg.Tolerance/2), is("!"), is("#"), is("(") > 0, now)
				}
			}
			b := check(t, g, now)
			var text strings.Builder
			if b.Print(&text); text.String() != "stereo: "+x[1]+"\n" || b.Open > 0 {
				t.Errorf("%s, rate %t:\n%s instead of\n%s", x[0], rate, text.String(), x[1])
			}
		}
	}
}

// TestNumbersAgree checks that groups in two processes give the same numbers, and that every frame of an instant gets
// the same one, in whatever order the frames come.
func TestNumbersAgree(t *testing.T) {
	for _, rate := range []pipeline.Rate{{Num: 100, Den: 1}, {Num: 30, Den: 1}, {Num: 30000, Den: 1001}, {Num: 1, Den: 7}, {Num: 1e6, Den: 999_999}} {
		instants := Instants(rate)
		cfg := Config{Name: "g", Sources: []string{"a", "b"}, Rate: rate, Tolerance: rate.Period() / 4, Delay: 3 * time.Millisecond}
		one, two := New(cfg), New(cfg)
		begin := instants.from(noon)
		for k := range uint64(1000) {
			at := instants.At(begin + k)
			jitter := func() time.Time {
				return at.Add(cfg.Delay + time.Duration(rand.Int64N(int64(rate.Period()/2))-int64(rate.Period()/4)))
			}
			got := []uint64{
				one.take(1, jitter(), 0, 0, false, at), one.take(0, jitter(), 0, 0, false, at),
				two.take(0, jitter(), 0, 0, false, at), two.take(1, jitter(), 0, 0, false, at),
			}
			if slices.Min(got) != begin+k || slices.Max(got) != begin+k {
				t.Fatalf("rate %v: %d, not %d", rate, got, begin+k)
			}
		}
		for _, g := range []*Group{one, two} {
			if b := check(t, g, noon); b.Complete != 1000 || b.Incomplete > 0 {
				t.Errorf("rate %v: %+v", rate, b)
			}
		}
	}
}

// TestInstants checks that whole rates are aligned to the second, and that times without a number get none.
func TestInstants(t *testing.T) {
	for _, n := range []int{1, 7, 30, 100, 1e6} {
		i := Instants{Num: n, Den: 1}
		if first := i.from(noon); !i.At(first).Equal(noon) || !i.At(first+uint64(n)).Equal(noon.Add(time.Second)) {
			t.Errorf("rate %d: %v", n, i.At(first))
		}
	}
	i := Instants{Num: 1e6, Den: 1}
	for _, at := range []time.Time{{}, time.Unix(-1, 0), time.Unix(0, 1), time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(1<<62, 0)} {
		if n, _, ok := i.Nearest(at); ok {
			t.Errorf("%v has number %d", at, n)
		}
	}
	if at := i.At(1 << 63); at.Year() < 2260 && !at.IsZero() {
		t.Error(at)
	}
	for range 10_000 {
		i := Instants{Num: 1 + rand.IntN(1e6), Den: 1 + rand.IntN(1e6)}
		at := time.Unix(rand.Int64N(latest), rand.Int64N(1e9))
		n, off, ok := i.Nearest(at)
		if period := pipeline.Rate(i).Period(); ok && (off.Abs() > period/2+2 || !at.Add(-off).Equal(i.At(n))) {
			t.Fatalf("%v of %v: instant %d at %v, off by %v", at, i, n, i.At(n), off)
		}
	}
}

// TestBooksAddUp drives groups with frames that are lost, damaged, late, early, doubled and out of order, by members
// that end and come back and clocks that drift and step, and checks that the books add up, and that what they keep is
// bounded.
func TestBooksAddUp(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		cfg := Config{
			Name: "g", Rate: pipeline.Rate{Num: []int{0, 10, 100, 1000}[r.IntN(4)], Den: 1}, Tolerance: time.Duration(r.IntN(400)) * time.Microsecond,
			Period: time.Duration(r.IntN(50)) * time.Millisecond,
		}
		for i := range 2 + r.IntN(MaxMembers-1) {
			cfg.Sources = append(cfg.Sources, fmt.Sprint("camera", i))
		}
		g, now, wall := New(cfg), noon, noon
		filling := map[int]uint64{}
		for range 3000 {
			now = now.Add(time.Duration(r.IntN(2)) * time.Millisecond)
			wall = wall.Add(time.Duration(r.IntN(2))*time.Millisecond + time.Duration(r.IntN(50)))
			i := r.IntN(len(cfg.Sources))
			if n, is := filling[i]; is {
				delete(filling, i)
				g.finished(i, n, r.IntN(4) == 0, now)
				continue
			}
			switch at := wall; r.IntN(40) {
			case 0:
				g.ended(i)
			case 1:
				wall = wall.Add(time.Duration(r.IntN(4001)-2000) * time.Millisecond)
			case 2:
				now = now.Add(time.Duration(r.IntN(3)) * g.patience)
			case 3:
				g.take(i, []time.Time{{}, time.Unix(-1<<40, 0), time.Unix(1<<60, 0), time.Unix(latest, 1)}[r.IntN(4)], 1, 0, false, now)
			default:
				at = at.Add(-time.Duration(r.IntN(30)) * time.Millisecond)
				fills := r.IntN(3) == 0
				if n := g.take(i, at, uint64(r.IntN(5)/4), uint64(r.IntN(9)/8), fills, now); fills {
					filling[i] = n
				}
			}
			if r.IntN(100) == 0 {
				check(t, g, now)
			}
		}
		for i, n := range filling {
			g.finished(i, n, false, now)
		}
		g.Close()
		if b := check(t, g, now); b.Open != 0 || len(b.Recent) > recentGaps || b.Complete+b.Incomplete == 0 || len(g.ring) != remembered {
			t.Fatalf("seed %d: %+v", seed, b)
		}
		if t.Failed() {
			t.Fatalf("seed %d: %+v", seed, cfg)
		}
	}
}

// TestASilentMemberTakesNoMemory checks that a member that never delivers keeps a bounded number of groups open.
func TestASilentMemberTakesNoMemory(t *testing.T) {
	cfg := stereo()
	cfg.Rate.Num = 1e6
	cfg.Tolerance = 0
	g := New(cfg)
	g.take(1, noon, 0, 0, false, noon)
	for n := range 10 * remembered {
		at := noon.Add(time.Duration(n) * time.Microsecond)
		if g.take(0, at, 0, 0, false, at) == 0 {
			t.Fatal("a frame has no number")
		}
	}
	b := check(t, g, noon)
	if b.Open > remembered || b.Open+int(b.Incomplete) != 10*remembered-1 || !maps.Equal(b.Members[1].Missing, map[string]uint64{"silent": b.Incomplete}) {
		t.Errorf("%+v", b)
	}
	if n := testing.AllocsPerRun(1000, func() {
		g.take(0, noon, 0, 0, false, noon)
	}); n > 0 {
		t.Errorf("%v allocations a frame", n)
	}
}
