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

// witness watches a faulty stream: no wrong byte, no step back, no long silence.
type witness struct {
	bench  *bench
	want   []byte
	frames int
	last   uint64
	wrong  int
	at     time.Time     // of the last frame
	gap    time.Duration // the longest silence
	log    lockedBuffer
}

// lockedBuffer is a log that may be written from several goroutines.
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

// outcome is what a run came to.
type outcome struct {
	Captured, Lost uint64
	Report         map[string]uint64
	Faults         map[model.FaultID]uint64
	Schedule       string // which faults happened to which frames
	Err            string
	Log            string
}

// faultyRate is about 50 frames/s: the period is no multiple of any other time in the system, so that no two things
// happen at the same instant of the bubble and their order is always the same.
var faultyRate = pipeline.Rate{Num: 49971, Den: 1000}

// stream runs a camera with faults for d of the bubble's time. A line has 128 bytes, so 16 of them need one descriptor and
// 320 about six.
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

// expected says whether Close may report this after a fault that nothing could recover.
func expected(err error) bool {
	for _, e := range goodbyes {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// faultCases says, for each fault while streaming, what the log must name, how long the stream may be silent, and
// whether the bus may have refused something.
var faultCases = map[model.FaultID]struct {
	says    string
	silence time.Duration
	refused bool
	ends    bool // it may end the stream, with an error
}{
	model.F1:  {says: "no frame comes", silence: 2500 * time.Millisecond}, // seen after a second; the next frame may be hit, too
	model.F2:  {silence: 500 * time.Millisecond},
	model.F3:  {says: "channel is busy", ends: true},
	model.F4:  {says: "all ones", silence: time.Second, ends: true},
	model.F5:  {says: "magic_stopped", silence: 500 * time.Millisecond},
	model.F6:  {silence: 500 * time.Millisecond},
	model.F7:  {silence: 500 * time.Millisecond},
	model.F8:  {says: "out of step", silence: 1500 * time.Millisecond}, // a packet without end is ended by force after a second
	model.F9:  {silence: time.Second},
	model.F10: {says: "do not match the FPGA's CRC", silence: 500 * time.Millisecond, refused: true},
	model.F11: {says: "revoked", silence: 500 * time.Millisecond, refused: true},
	model.F12: {says: "reset", silence: time.Second},
}

func TestFaultsWhileStreaming(t *testing.T) {
	for _, id := range model.FaultIDs() {
		for _, rate := range []float64{0.01, 0.1} {
			for seed := range uint64(3) {
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
		rates[model.F8] = 0.02 // the engine is stopped after it, and that is their occasion
	}
	w, out := stream(t, model.FaultPlan{Seed: seed, Rates: rates}, 320, 20*time.Second)
	w.judge(t, id, faultCases[id].silence, out)
}

// judge says whether the stream went on as it should under the fault, with so long a silence at most.
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

// Half an hour of all faults at random: the same seed gives the same faults and the same books, to the frame. When a
// fault ends the stream for good (a link that stays lost, an engine that stays busy), the service manager would start the
// program again: the next life begins with a new device.
func TestFaultsHaveTheSameEndEachTime(t *testing.T) {
	rates := map[model.FaultID]float64{}
	for _, id := range model.FaultIDs() {
		rates[id] = 0.0005
	}
	rates[model.F3] = 0.0001 // it ends every life
	seeds := uint64(soakSeeds)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
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
					if out.Err != "" { // which of two that see a lost link at the same instant says it first is open
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

// difference shows where two logs part. Addresses differ from run to run.
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

// goodbyes are what a camera may say when it lets go of hardware that is broken for good.
var goodbyes = []error{xdma.ErrBusy, xdma.ErrGone, fpga.ErrCameraGone, tegra.ErrRevoked}
