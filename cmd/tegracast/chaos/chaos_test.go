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
	"syscall"
	"testing"
	"time"
)

var (
	length  = flag.Duration("chaos", 0, "how long TestChaos takes things away, such as 30m (default: some seconds)")
	seed    = flag.Uint64("seed", 0, "seed of TestChaos (default: a new one, or that of its short form)")
	only    = flag.String("only", "", "regular expression of the faults that TestFaultsAlone has")
	heldFor = flag.Duration("held", 3*time.Second, "how long TestFaultsAlone has each fault in force")
)

// Time limits: for everything to run again once it was restored, and for the service to end after SIGTERM.
const (
	recoverBound = time.Minute
	endBound     = 5 * time.Second
)

// startService starts the service and waits until everything runs.
func (w *world) startService(t *testing.T) {
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
	w.log.logf("everything runs after %v", time.Since(began).Round(time.Millisecond))
}

// ends stops the service, and checks how it ends.
func (w *world) ends() {
	began := time.Now()
	p, took, in := w.service.stop(endBound)
	if !in {
		more := w.late.since(began) // the machine may be late
		if strings.Contains(p.said(), "not everything has ended in time") {
			more += slowWrite // the kernel may hold an ended process for a request to the slow disk
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
	w.log.logf("start %d has ended %v after SIGTERM; in force: %s", p.number, took.Round(time.Millisecond), strings.Join(w.inForce, ", "))
	begins := p.ready.IsZero() && cannotBegin.MatchString(p.said())
	atOnce := p.status().Signaled() && p.status().Signal() == syscall.SIGTERM && p.said() == "" // before the program itself has started
	if status := p.cmd.ProcessState.ExitCode(); status != 0 && !begins && !atOnce && !p.outOfMemory() {
		w.log.fail("start %d ends with %v:\n%s", p.number, p.cmd.ProcessState, lastOf(p.said()))
	}
	if err := checkBooks(read(p.out), p.said()); err != nil && !p.ready.IsZero() && !p.outOfMemory() {
		w.log.fail("start %d: %v", p.number, err)
	}
	if err := w.checkRecordings(p); err != nil {
		w.log.fail("start %d: %v", p.number, err)
	}
}

// TestFaultsAlone injects each fault alone and removes it. Faults of network and disk are also in force at a start.
func TestFaultsAlone(t *testing.T) {
	if os.Getenv("TEGRACAST_LONG") == "" {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make test-long-chaos)")
	}
	needs(t)
	w := newWorld(t)
	defer w.log.report(t)
	w.startService(t)
	health := w.watchHealth()
	chosen := regexp.MustCompile(*only)
	for _, f := range w.faults() {
		if !chosen.MatchString(f.String()) {
			continue
		}
		w.applyFault(&f, take)
		time.Sleep(*heldFor)
		w.applyFault(&f, give)
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
		w.applyFault(&f, take)
		w.ends()
		if err := w.service.start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(*heldFor)
		w.applyFault(&f, give)
		w.recovers(t.Context())
		w.compare(t.Context(), before)
	}
	health.end()
	w.ends()
}

// shortSeed is the seed of the short form.
const shortSeed = 260038

// The short form, and the rate of faults.
var (
	shortPhases = []phase{{10 * time.Second, terminate}, {7 * time.Second, calm}, {3 * time.Second, finish}}
	shortPace   = pace{pause: 700 * time.Millisecond, longest: 4 * time.Second, most: 8}
	longPace    = pace{pause: 3 * time.Second, longest: 20 * time.Second, most: 8}
)

// TestChaos runs the service while a seeded script injects and removes faults. The service must answer, end when it is
// told to, and finally be as it was.
func TestChaos(t *testing.T) {
	if testing.Short() {
		t.Skip("SHORT: it takes several seconds: make test runs it")
	}
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
	defer w.log.report(t)
	defer w.saveOutput(t)
	faults := w.faults()
	script := write(rng, faults, phases, speed)
	if testing.Verbose() {
		t.Logf("the script:\n%s", strings.Join(show(script, faults), "\n"))
	}
	w.startService(t)
	time.Sleep(warm)
	before, err := w.holds()
	if err != nil {
		t.Fatal(err)
	}
	w.log.logf("the process holds %+v", before)
	health := w.watchHealth()
	w.play(t.Context(), script, faults, before)
	health.end()
}

// play executes a script. Its clock stops while the service ends and recovers.
func (w *world) play(ctx context.Context, script []step, faults []fault, before holdings) {
	began, over := time.Now(), false
	for _, s := range script {
		if !over {
			time.Sleep(time.Until(began.Add(s.at)))
		}
		stopped := time.Now()
		switch s.what {
		case take, give:
			w.applyFault(&faults[s.fault], s.what)
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

// applyFault injects or removes a fault.
func (w *world) applyFault(f *fault, what act) {
	name, done := "GIVE", f.give
	if what == take {
		name, done = "TAKE", f.take
	}
	w.log.logf("%s %v", name, f)
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
	w.log.logf("the process holds %+v, its files: %s", now, w.service.process().files())
}

// saveOutput saves the service's output if something is wrong.
func (w *world) saveOutput(t *testing.T) {
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
