// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/fpga/xdma"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/tegra"
)

// witness checks a faulty stream for wrong bytes, decreasing numbers and long silences.
type witness struct {
	bench  *bench
	want   []byte
	frames int
	last   uint64
	wrong  int
	at     time.Time     // time of the last frame
	gap    time.Duration // the longest silence
	log    lockedBuffer
}

// lockedBuffer is a log that can be written from several goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (w *witness) see(t *testing.T, f *pipeline.Frame) {
	defer f.Release()
	n, err := model.ReadStamp(f.Bytes, w.bench.sensor.Config().Format)
	if err == nil {
		w.bench.sensor.Frame(n, w.want)
	}
	if err != nil || !bytes.Equal(w.want, f.Bytes) {
		w.wrong++
		t.Errorf("frame %d was delivered with wrong bytes (stamp %d, %v)", f.Sequence, n, err)
	}
	if w.frames > 0 && f.Sequence <= w.last {
		t.Errorf("frame %d after frame %d", f.Sequence, w.last)
	}
	now := time.Now()
	w.gap = max(w.gap, now.Sub(w.at))
	w.frames, w.last, w.at = w.frames+1, f.Sequence, now
}

// outcome is the result of a run.
type outcome struct {
	Captured, Lost uint64
	Report         map[string]uint64
	Faults         map[model.FaultID]uint64
	Schedule       string // which fault occurred at which frame
	Err            string
	Log            string
}

// faultyRate is about 50 frames/s. Its period is not a multiple of any other time in the system, so no two events
// happen at the same instant of the bubble and their order is always the same.
var faultyRate = pipeline.Rate{Num: 49971, Den: 1000}

// stream runs a camera with faults for d of virtual time. A line has 128 bytes, so 16 lines need one descriptor and 320
// about six.
func stream(t *testing.T, plan model.FaultPlan, lines int, d time.Duration) (*witness, outcome) {
	return streamFrom(t, newFaultyBench(t, 64, lines, faultyRate, plan), d)
}

func streamFrom(t *testing.T, b *bench, d time.Duration) (*witness, outcome) {
	w := &witness{bench: b, want: make([]byte, b.sensor.FrameBytes()), at: time.Now()}
	logger := slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c, err := NewFPGACamera(FPGAConfig{
		Card: b.card, Width: 64, Height: b.sensor.Config().Height, Pixel: pipeline.RGGB10, Slots: 6, Rate: faultyRate,
		Bare: b.sensor.Config().Bare, GiveUp: 5 * time.Second, Logger: logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	first, out := uint64(0), outcome{}
	err = c.Run(ctx, func(f *pipeline.Frame) {
		if w.frames == 0 {
			first = f.Sequence
		}
		w.see(t, f)
	})
	if err != nil {
		out.Err = err.Error()
	} else {
		w.gap = max(w.gap, time.Since(w.at))
	}
	out.Captured, out.Report, out.Faults = uint64(w.frames), c.Status().Counters, b.device.FaultCounts()
	if w.frames > 0 {
		out.Lost = w.last - first + 1 - out.Captured
	}
	out.Log, out.Schedule = w.log.String(), fmt.Sprint(b.device.FaultLog())
	if err := c.Close(); err != nil && !expected(err) {
		t.Errorf("close: %v", err)
	}
	return w, out
}

// expected reports whether Close may return this error after a fault that cannot be recovered.
func expected(err error) bool {
	for _, e := range goodbyes {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// faultCases lists for each fault while streaming what the log must contain, how long the stream may be silent, and
// whether the bus may refuse an access.
var faultCases = map[model.FaultID]struct {
	says    string
	silence time.Duration
	refused bool
	ends    bool // it may end the stream with an error
}{
	model.F1:  {says: "no frame arrives", silence: 2500 * time.Millisecond}, // detected after one second; the fault may also hit the next frame
	model.F2:  {silence: 500 * time.Millisecond},
	model.F3:  {says: "channel is busy", ends: true},
	model.F4:  {says: "all ones", silence: time.Second, ends: true},
	model.F5:  {says: "magic_stopped", silence: 500 * time.Millisecond},
	model.F6:  {silence: 500 * time.Millisecond},
	model.F7:  {silence: 500 * time.Millisecond},
	model.F8:  {says: "out of step", silence: 1500 * time.Millisecond}, // a packet without an end is ended by force after one second
	model.F9:  {silence: time.Second},
	model.F10: {says: "do not match the FPGA's CRC", silence: 500 * time.Millisecond, refused: true},
	model.F11: {says: "revoked", silence: 500 * time.Millisecond, refused: true},
	model.F12: {says: "reset", silence: time.Second},
}

func TestFaultsWhileStreaming(t *testing.T) {
	for _, id := range model.FaultIDs() {
		for _, rate := range []float64{0.01, 0.1} {
			for seed := range uint64(faultSeeds) {
				t.Run(fmt.Sprintf("%v/%g/%d", id, rate, seed), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { checkFault(t, id, rate, seed) })
				})
			}
		}
	}
}

func checkFault(t *testing.T, id model.FaultID, rate float64, seed uint64) {
	rates := map[model.FaultID]float64{id: rate}
	if id == model.F2 || id == model.F3 {
		rates[model.F8] = 0.02 // the fault needs a stop of the engine, which F8 causes
	}
	w, out := stream(t, model.FaultPlan{Seed: seed, Rates: rates}, 320, 20*time.Second)
	w.judge(t, id, faultCases[id].silence, out)
}

// judge checks that the stream survived the fault as it should, with silences of at most silence.
func (w *witness) judge(t *testing.T, id model.FaultID, silence time.Duration, out outcome) {
	t.Helper()
	want := faultCases[id]
	hits := out.Faults[id]
	t.Logf("%d faults, %d frames, %d lost, silence %v, %v %s", hits, out.Captured, out.Lost, w.gap, out.Report, out.Err)
	if hits == 0 {
		t.Error("the fault did not happen")
	}
	if log := w.log.String(); want.says != "" && !strings.Contains(log, want.says) {
		t.Errorf("the log does not say %q:\n%s", want.says, log)
	}
	if out.Err != "" && !want.ends {
		t.Errorf("the stream ended: %s", out.Err)
	}
	if w.gap > silence && out.Err == "" {
		t.Errorf("silent for %v, want at most %v:\n%s", w.gap, silence, w.log.String())
	}
	if _, n := w.bench.sim.Faults(); n > 0 && !want.refused {
		t.Errorf("the bus refused %d accesses", n)
	}
}

// All faults at random for a while: the same seed gives the same faults and the same counts, to the frame. When a
// fault ends the stream for good (a lost link, an engine that stays busy), the service manager would restart the
// program; here the next run begins with a new device.
func TestFaultsHaveTheSameEndEachTime(t *testing.T) {
	if testing.Short() {
		t.Skip("SHORT: it takes several seconds: make test runs it")
	}
	rates := map[model.FaultID]float64{}
	for _, id := range model.FaultIDs() {
		rates[id] = 0.0005
	}
	rates[model.F3] = 0.0001 // it ends every run
	for seed := range uint64(soakSeeds) {
		var ends [2][]outcome
		var logs [2]string
		for i := range ends {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				for time.Since(began) < soakTime {
					plan := model.FaultPlan{Seed: seed<<32 | uint64(len(ends[i])), Rates: rates}
					_, out := stream(t, plan, 16, soakTime-time.Since(began))
					logs[i] += out.Log
					out.Log = ""
					if out.Err != "" { // two goroutines may see a lost link at the same instant, and either may report it first
						out.Err = "ended"
					}
					ends[i] = append(ends[i], out)
				}
			})
		}
		if !reflect.DeepEqual(ends[0], ends[1]) {
			t.Errorf("seed %d: two ends; the logs part here:\n%s", seed, difference(logs[0], logs[1]))
		}
		captured, lost := uint64(0), uint64(0)
		for _, o := range ends[0] {
			captured, lost = captured+o.Captured, lost+o.Lost
		}
		t.Logf("seed %d: %d lives, %d frames captured, %d lost", seed, len(ends[0]), captured, lost)
	}
}

// difference shows where two logs start to differ. Addresses differ from run to run and are ignored.
func difference(a, b string) string {
	address := regexp.MustCompile(`0x[0-9a-f]+`)
	la, lb := strings.Split(address.ReplaceAllString(a, "…"), "\n"), strings.Split(address.ReplaceAllString(b, "…"), "\n")
	i := 0
	for i < min(len(la), len(lb)) && la[i] == lb[i] {
		i++
	}
	from := max(i-3, 0)
	return strings.Join(la[from:min(i+2, len(la))], "\n") + "\n\n" + strings.Join(lb[from:min(i+2, len(lb))], "\n")
}

// goodbyes are the errors that a camera may return when it releases hardware that is broken for good.
var goodbyes = []error{xdma.ErrBusy, xdma.ErrGone, fpga.ErrCameraGone, tegra.ErrRevoked}
