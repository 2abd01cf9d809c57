// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/lines/linestest"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestReload changes the second camera, an output of the first one, and a second destination of its other output, a
// thousand times at random, sometimes to invalid values. The other output must not lose a frame to its first receiver,
// and nothing may leak.
func TestReload(t *testing.T) { programtest.Quiet(t, reloadAtRandom) }

func reloadAtRandom(t *testing.T) error {
	rounds := 1000
	if testing.Short() {
		rounds = 50
	}
	p := rtptest.EvenPorts(t, 4)
	var to []string
	for _, port := range p {
		to = append(to, fmt.Sprint("127.0.0.1:", port))
	}
	s := newReloads(t, reloadConfig(t, to, 100, 1.5, 1400), linestest.New())
	receiver := programtest.StartProgram(t, "probe", "--sdp", filepath.Join(s.announcer.dir, "raw1.sdp"), "--duration", "1h", "--json")
	programtest.Listening(t, receiver.Process.Pid, p[0])
	s.begin(t)
	unchanged := s.flows.find("one").outputs[0]
	lateness := rtptest.WatchLateness(t)
	held, bad := s.changeAtRandom(t, to, rounds)
	now, late := holds(t), lateness()
	if n := s.log.count("still running the previous one"); n != bad {
		t.Errorf("%d of %d bad files were refused", n, bad)
	}
	if n := s.log.count(s.file + ":22:"); n != bad {
		t.Errorf("%d of %d refusals have the line of the mistake", n, bad)
	}
	if n := s.log.count("going back"); n > 0 {
		t.Errorf("%d good files could not be opened", n)
	}
	if now.goroutines > held.goroutines+8 || now.files > held.files+4 || now.mappings > held.mappings+16 || now.resident > held.resident+8<<10 {
		t.Errorf("half way it held %+v, then %+v", held, now)
	}
	if s.flows.find("one").outputs[0] != unchanged {
		t.Error("the unchanged output was opened again")
	}
	st := s.end(t)
	i := slices.IndexFunc(st.Outputs, func(o pipeline.OutputStats) bool { return o.Name == "raw1" })
	if i < 0 || st.Sources[0].Name != "one" {
		t.Fatalf("%+v of %+v", st.Outputs, st.Sources)
	}
	t.Logf("%d reloads, %d of them refused; half way it held %+v, then %+v; %v", rounds, bad, held, now, late)
	err := receivesAll(t, receiver, p[0], st.Outputs[i].Delivered)
	lost := lossless(st.Sources[0], st.Outputs[i])
	if n := st.Sources[0].Lost + st.Outputs[i].Drops(); lost != nil && !late.Explains(n, st.Sources[0].Period) {
		t.Error(lost)
	}
	return errors.Join(err, lost)
}

// changeAtRandom returns the resources held at half time, and the number of invalid changes.
func (s *reloads) changeAtRandom(t *testing.T, to []string, rounds int) (held holdings, bad int) {
	rng := rand.New(rand.NewPCG(1, 2))
	rate, red, mtu, second := 100, 1.5, 1400, false
	text := func() string {
		c := reloadConfig(t, to, rate, red, mtu)
		if !second {
			return c
		}
		return strings.Replace(c, fmt.Sprintf("[%q]", to[0]), fmt.Sprintf("[%q, %q]", to[0], to[3]), 1)
	}
	for i := range rounds {
		switch rng.IntN(5) {
		case 0:
			rate = 50 + rng.IntN(100)
		case 1:
			red = 1 + float64(rng.IntN(64))/64
		case 2:
			mtu = 1000 + rng.IntN(400)
		case 3:
			second = !second
		case 4:
			bad++
			s.put(t, strings.Replace(text(), "mtu: ", "mut: ", 1))
			continue
		}
		s.put(t, text())
		if got := len(s.stream(t, "raw1").sink.Stats().Destinations); got != len(s.reloader.cfg.Output("raw1").Kind.(*config.RTP).Destinations) {
			t.Errorf("raw1 has %d destinations", got)
		}
		if i >= rounds/2 && held.goroutines == 0 {
			held = holds(t)
		}
	}
	return held, bad
}

// lossless checks that neither the source nor the appliance has lost a frame.
func lossless(source pipeline.SourceStats, o pipeline.OutputStats) error {
	if o.Captured == 0 || o.Delivered != o.Captured || source.Lost != 0 {
		return fmt.Errorf("the unchanged output has delivered %d of %d frames, dropped %v; its source has lost %d", o.Delivered, o.Captured, o.Dropped, source.Lost)
	}
	return nil
}

// receivesAll checks that the receiver has got one stream without gaps, and every frame. Packets that the kernel dropped
// at the receiver's socket are not the appliance's fault, and the test is repeated.
func receivesAll(t *testing.T, receiver *programtest.Process, port int, delivered uint64) error {
	t.Helper()
	got, overflow := receiver.Received(t, port)
	t.Logf("unchanged output: delivered %d; received %d, %d CRCs right, %d packets lost, %d drops at the receiver's socket",
		delivered, got.Frames, got.Matched, got.Lost, overflow)
	if !got.Blames(overflow) || got.Foreign+got.Mismatched+got.Malformed > 0 || got.Byes != 1 {
		t.Errorf("the unchanged stream was disturbed: %+v; the receiver's socket has dropped %d packets", got, overflow)
	}
	if overflow > 0 {
		return fmt.Errorf("the receiver's socket has dropped %d packets", overflow)
	}
	if got.Frames != delivered || got.Matched != got.Frames {
		t.Errorf("%d frames were sent: %+v", delivered, got)
	}
	return nil
}

// holdings are the resources of a process.
type holdings struct {
	goroutines, files, mappings int
	resident                    float64 // KiB
}

func holds(t *testing.T) holdings {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return holdings{runtime.NumGoroutine(), len(files), strings.Count(string(maps), "\n"), programtest.Resident(t, os.Getpid())}
}
