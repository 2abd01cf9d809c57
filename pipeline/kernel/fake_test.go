// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// fake is a device whose kernels are controlled by their source, one command per line: "add N" adds N to each byte;
// "fail" does not compile; "slow D", "hang", "illegal", "refuse" and, applied to those before it, "half" determine what
// happens to a frame; with "queue D" the kernel begins after D.
type fake struct {
	mu     sync.Mutex
	open   int // number of programs
	built  []string
	closed bool
	states int // number of times that state was zeroed
}

type fakeProgram struct {
	device *fake
	text   string
	left   [inFlight][]byte
	begin  [inFlight]time.Time // of a job's kernel; zero if it never begins
}

var (
	errCompile = errors.New("does not compile")
	errHalf    = errors.New("the copy cannot be enqueued")
)

// gone is a sticky error of a device.
type gone struct{}

func (gone) Error() string { return "CUDA_ERROR_ILLEGAL_ADDRESS" }

func (gone) Sticky() bool { return true }

func (d *fake) build(s *source) (program, error) {
	_, text, _ := strings.Cut(s.text, fmt.Sprintf("#line 1 %q\n", s.file))
	text, _, _ = strings.Cut(text, "\n#line")
	d.mu.Lock()
	defer d.mu.Unlock()
	d.built = append(d.built, text)
	if strings.Contains(text, "fail") {
		return nil, fmt.Errorf("%w: %s(1): error", errCompile, s.file)
	}
	d.open++
	return &fakeProgram{device: d, text: text}, nil
}

func (d *fake) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open != 0 || d.closed {
		return fmt.Errorf("closed with %d programs", d.open)
	}
	d.closed = true
	return nil
}

func (d *fake) builds() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.built)
}

func (p *fakeProgram) plan(pipeline.Format) error {
	p.device.mu.Lock()
	defer p.device.mu.Unlock()
	p.device.states++
	return nil
}

// ending is the fence of work that takes a while, counted from the first call of Wait.
type ending struct {
	after time.Duration // below 0: forever
	begin time.Time
	err   error
}

func (e *ending) Wait(ctx context.Context) error {
	if e.begin.IsZero() {
		e.begin = time.Now()
	}
	var end <-chan time.Time
	if e.after >= 0 {
		end = time.After(time.Until(e.begin.Add(e.after)))
	}
	select {
	case <-end:
		return e.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *fakeProgram) run(number int, in, out *pipeline.Frame) (pipeline.Fence, error) {
	e := &ending{}
	p.begin[number] = time.Now()
	for line := range strings.Lines(p.text) {
		word, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "add":
			var n int
			fmt.Sscan(value, &n)
			for i, b := range in.Bytes {
				out.Bytes[i] = b + byte(n)
			}
		case "find":
			p.left[number] = make([]byte, 4+maxRegions*regionSize+4+4)
			binary.LittleEndian.PutUint32(p.left[number], 1)
			for i, v := range []uint32{1, 1, 1, 1, 0xffffffff} {
				binary.LittleEndian.PutUint32(p.left[number][4+4*i:], v)
			}
		case "slow":
			e.after, _ = time.ParseDuration(value)
		case "hang":
			e.after = -1
		case "illegal":
			e.err = fmt.Errorf("event: %w", gone{})
		case "stumble":
			e.err = errors.New("not this one")
		case "queue":
			d, _ := time.ParseDuration(value)
			p.begin[number] = time.Now().Add(d)
			e.after += d
		case "innocent":
			p.begin[number] = time.Time{}
		case "half":
			return e, errHalf
		case "refuse":
			return nil, fmt.Errorf("launch: %w", gone{})
		}
	}
	return e, nil
}

func (p *fakeProgram) working(number int) bool {
	return !p.begin[number].IsZero() && !time.Now().Before(p.begin[number])
}

func (p *fakeProgram) results(number int) []byte { return p.left[number] }

func (p *fakeProgram) close() error {
	p.device.mu.Lock()
	defer p.device.mu.Unlock()
	p.device.open--
	return nil
}

// journal is a log that may be read while it is being written.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func (j *journal) Reset() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.text.Reset()
}

// bench is a stage on a fake device, with its file and its folder.
type bench struct {
	*Stage
	device *fake
	file   string
	folder string
	log    *journal
}

func newBench(t *testing.T, dir, text string, results bool) *bench {
	t.Helper()
	return newBenchIn(t, NewOrder(), dir, text, results)
}

func newBenchIn(t *testing.T, order *Order, dir, text string, results bool) *bench {
	t.Helper()
	b := &bench{device: &fake{}, file: filepath.Join(dir, "k.cu"), folder: filepath.Join(dir, "quarantine"), log: &journal{}}
	b.write(t, text)
	s, err := newStage(b.device, Config{Name: "k", File: b.file, Entry: "k", Results: results}, b.options(order))
	if err != nil {
		t.Fatal(err)
	}
	b.Stage = s
	return b
}

func (b *bench) options(order *Order) Options {
	return Options{Quarantine: NewQuarantine(b.folder), Order: order, Logger: slog.New(slog.NewTextHandler(b.log, nil))}
}

// write replaces the file atomically, because the stage may be reading it.
func (b *bench) write(t *testing.T, text string) {
	t.Helper()
	next := b.file + ".new"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, b.file); err != nil {
		t.Fatal(err)
	}
}

func grey(t testing.TB) pipeline.Format {
	t.Helper()
	f, err := pipeline.NewFormat(pipeline.Grey, 8, 4, pipeline.Rate{})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// frame passes a frame through the stage and waits for it.
func (b *bench) frame(t *testing.T, sequence uint64) (*pipeline.Frame, error) {
	t.Helper()
	f := grey(t)
	if err := b.Plan(f, []pipeline.Format{f}); err != nil {
		t.Fatal(err)
	}
	in := &pipeline.Frame{Format: f, Bytes: make([]byte, f.Size()), Sequence: sequence, Results: []pipeline.Result{{Stage: "before"}}}
	in.Bytes[0] = 10
	out := &pipeline.Frame{Format: f, Bytes: make([]byte, f.Size())}
	out.Inherit(in) // as the graph does
	if err := b.Process(t.Context(), in, []*pipeline.Frame{out}); err != nil {
		return out, err
	}
	if out.Ready != nil {
		if err := out.Ready.Wait(t.Context()); err != nil {
			return out, err
		}
	}
	if out.Sequence != sequence || len(out.Results) == 0 || out.Results[0].Stage != "before" || out.Times.Processed.IsZero() {
		t.Errorf("frame %d came out as %+v", sequence, out)
	}
	return out, nil
}
