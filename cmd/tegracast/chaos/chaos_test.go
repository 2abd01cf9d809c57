// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	length  = flag.Duration("chaos", 0, "how long TestChaos takes things away, such as 30m (default: some seconds)")
	seed    = flag.Uint64("seed", 0, "seed of TestChaos (default: a new one, or that of its short form)")
	only    = flag.String("only", "", "regular expression of the faults that TestFaultsAlone has")
	heldFor = flag.Duration("held", 3*time.Second, "how long TestFaultsAlone has each fault in force")
)

// Bounds: within the first everything runs again when it was given back, within the second the service ends at SIGTERM.
const (
	recoverBound = time.Minute
	endBound     = 5 * time.Second
)

// begin starts the service and waits until everything runs.
func (w *world) begin(t *testing.T) {
	t.Helper()
	if err := w.service.start(); err != nil {
		t.Fatal(err)
	}
	if err := eventually(t.Context(), recoverBound, w.runs); err != nil {
		t.Fatalf("it does not begin: %v\n%s", err, w.service.process().said())
	}
	if w.service.group == nil {
		t.Log("memory is not limited: this NEEDS a control group for memory that can be written")
		return
	}
	var err error
	if w.memory, err = w.service.group.has(); err != nil {
		t.Fatal(err)
	}
}

// recovers waits until everything runs.
func (w *world) recovers(ctx context.Context) {
	began := time.Now()
	if err := eventually(ctx, recoverBound+w.late.since(began), w.runs); err != nil {
		w.log.fail("not everything runs %v after all was given back: %v", time.Since(began).Round(time.Second), err)
		return
	}
	w.log.say("everything runs after %v", time.Since(began).Round(time.Millisecond))
}

// ends has the service end, and checks how it does.
func (w *world) ends() {
	began := time.Now()
	p, took, in := w.service.stop(endBound)
	if !in {
		more := w.late.since(began) // the machine may be late
		if strings.Contains(p.said(), "not everything has ended in time") {
			more += slowWrite // for which the kernel may hold a process that has ended: the slow disk has a request of it
		}
		select {
		case <-p.done:
			took = p.at.Sub(began)
			in = took <= endBound+more
		case <-time.After(more):
		}
	}
	if !in {
		w.log.fail("start %d does not end within %v of SIGTERM; in force: %s\n%s", p.number, endBound, strings.Join(w.inForce, ", "), p.stacks())
		_ = p.cmd.Process.Kill()
		<-p.done
		return
	}
	w.log.say("start %d has ended %v after SIGTERM; in force: %s", p.number, took.Round(time.Millisecond), strings.Join(w.inForce, ", "))
	begins := p.ready.IsZero() && cannotBegin.MatchString(p.said())
	if status := p.cmd.ProcessState.ExitCode(); status != 0 && !begins && !p.outOfMemory() {
		w.log.fail("start %d ends with %v:\n%s", p.number, p.cmd.ProcessState, lastOf(p.said()))
	}
	if err := checkBooks(read(p.out), p.said()); err != nil && !p.ready.IsZero() && !p.outOfMemory() {
		w.log.fail("start %d: %v", p.number, err)
	}
	if err := w.checkRecordings(p); err != nil {
		w.log.fail("start %d: %v", p.number, err)
	}
}

// TestFaultsAlone takes each thing away by itself, and gives it back. What the network and the disk need is also missing at a start.
func TestFaultsAlone(t *testing.T) {
	if os.Getenv("TEGRACAST_LONG") == "" {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make test-long-chaos)")
	}
	needs(t)
	w := newWorld(t)
	defer w.log.tell(t)
	w.begin(t)
	health := w.watchHealth()
	chosen := regexp.MustCompile(*only)
	for _, f := range w.faults() {
		if !chosen.MatchString(f.String()) {
			continue
		}
		w.do(&f, take)
		time.Sleep(*heldFor)
		w.do(&f, give)
		w.recovers(t.Context())
	}
	before, err := w.holds()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range append(w.networkFaults(), w.diskFaults()...) {
		if !chosen.MatchString(f.String()) {
			continue
		}
		w.do(&f, take)
		w.ends()
		if err := w.service.start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(*heldFor)
		w.do(&f, give)
		w.recovers(t.Context())
		w.compare(t.Context(), before)
	}
	health.end()
	w.ends()
}

// shortSeed is that of the short form.
const shortSeed = 260038

// The short form, and how fast things are taken away.
var (
	shortPhases = []phase{{10 * time.Second, terminate}, {7 * time.Second, calm}, {3 * time.Second, finish}}
	shortPace   = pace{pause: 700 * time.Millisecond, longest: 4 * time.Second, most: 8}
	longPace    = pace{pause: 3 * time.Second, longest: 20 * time.Second, most: 8}
)

// TestChaos has the service live through what a seeded script takes away and gives back: it answers, ends when it is told to, and in the end it is
// as it was.
func TestChaos(t *testing.T) {
	needs(t)
	warm, phases, speed := 2*time.Second, shortPhases, shortPace
	if *seed == 0 {
		*seed = shortSeed
		if *length > 0 {
			*seed = uint64(time.Now().UnixNano())
		}
	}
	rng := rand.New(rand.NewPCG(*seed, 0))
	if *length > 0 {
		warm, speed = time.Minute, longPace
		phases = append(phasesOf(*length, rng), phase{20 * time.Second, finish})
	}
	t.Logf("-seed %d repeats this script", *seed)
	w := newWorld(t)
	defer w.log.tell(t)
	defer w.keep(t)
	faults := w.faults()
	script := write(rng, faults, phases, speed)
	if testing.Verbose() {
		t.Logf("the script:\n%s", strings.Join(show(script, faults), "\n"))
	}
	w.begin(t)
	time.Sleep(warm)
	before, err := w.holds()
	if err != nil {
		t.Fatal(err)
	}
	w.log.say("the process holds %+v", before)
	health := w.watchHealth()
	w.play(t.Context(), script, faults, before)
	health.end()
}

// play does what a script says. Its clock stands still while the service ends, and while it recovers.
func (w *world) play(ctx context.Context, script []step, faults []fault, before holdings) {
	began, over := time.Now(), false
	for _, s := range script {
		if !over {
			time.Sleep(time.Until(began.Add(s.at)))
		}
		stopped := time.Now()
		switch s.what {
		case take, give:
			w.do(&faults[s.fault], s.what)
			continue
		case calm:
			w.recovers(ctx)
			w.compare(ctx, before)
		case terminate:
			w.ends()
			if err := w.service.start(); err != nil {
				w.log.fail("%v", err)
			}
		case finish:
			w.ends()
			over = true
		}
		began = began.Add(time.Since(stopped))
	}
}

// do takes something away, or gives it back.
func (w *world) do(f *fault, what act) {
	name, done := "GIVE", f.give
	if what == take {
		name, done = "TAKE", f.take
	}
	w.log.say("%s %v", name, f)
	if err := done(); err != nil {
		w.log.fail("%s %v: %v", name, f, err)
	}
	w.inForce = slices.DeleteFunc(w.inForce, func(is string) bool { return is == f.String() })
	if what == take {
		w.inForce = append(w.inForce, f.String())
	}
}

// compare waits until the process holds no more than before.
func (w *world) compare(ctx context.Context, before holdings) {
	var now holdings
	err := eventually(ctx, recoverBound, func() (err error) {
		if now, err = w.holds(); err != nil {
			return err
		}
		return now.within(before)
	})
	if err != nil {
		w.log.fail("%v", err)
	}
	w.log.say("the process holds %+v, its files: %s", now, w.service.process().files())
}

// keep keeps what the service has said, if something is wrong.
func (w *world) keep(t *testing.T) {
	t.Helper()
	folder := filepath.Join(os.TempDir(), fmt.Sprintf("tegracast-chaos-%d", *seed))
	if !w.log.failed() {
		return
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for n := range w.service.starts {
		name := fmt.Sprintf("%03d.log", n+1)
		if err := os.WriteFile(filepath.Join(folder, name), []byte(read(filepath.Join(w.service.folder, name))), 0o600); err != nil {
			t.Error(err)
		}
	}
	t.Logf("what the service has said is in %s", folder)
}
