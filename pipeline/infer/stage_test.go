// SPDX-License-Identifier: Apache-2.0

package infer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/share"
)

// processes stand for Work, by what they do. They get its task.
var processes = map[string]func(t Task, frames, reports *os.File) error{
	"work": work,
	"works": func(t Task, frames, reports *os.File) error {
		r := reporter{to: reports}
		if err := errors.Join(r.send(report{State: Loading, Runtime: "1.17.0"}), r.send(report{State: Running, Runtime: "1.17.0"})); err != nil {
			return err
		}
		k, err := share.Dial(context.Background(), share.ClientConfig{Conn: frames, Answers: true})
		if err != nil {
			return err
		}
		for {
			if _, err := k.Next(context.Background()); err != nil {
				return nil // the stage ends
			}
		}
	},
	"fails": func(Task, *os.File, *os.File) error { return errors.New("no library is here") },
	"panics": func(_ Task, _, reports *os.File) error {
		_ = (&reporter{to: reports}).send(report{State: Loading})
		panic("an index is out of range")
	},
	"ends": func(Task, *os.File, *os.File) error { return nil },
	"hangs": func(_ Task, _, reports *os.File) error {
		signal.Ignore(os.Interrupt)
		_ = (&reporter{to: reports}).send(report{State: Loading})
		select {}
	},
	"writes no report": func(_ Task, _, reports *os.File) error {
		_, _ = fmt.Fprintln(reports, "ready")
		time.Sleep(time.Hour)
		return nil
	},
	"writes a long report": func(_ Task, _, reports *os.File) error {
		_, _ = reports.Write(bytes.Repeat([]byte(" "), 2*maxReport))
		time.Sleep(time.Hour)
		return nil
	},
	"writes much": func(Task, *os.File, *os.File) error {
		for range 1000 {
			fmt.Fprintln(os.Stderr, strings.Repeat("\x1b[31mred ", 1000))
		}
		return errors.New("that was much")
	},
	"needs cpu": func(t Task, _, reports *os.File) error {
		r := &reporter{to: reports}
		_ = r.send(report{State: Loading})
		switch t.Provider {
		case "tensorrt":
			_ = r.send(report{Failed: "no engine"})
			return errors.New("no engine")
		case "cuda":
			os.Exit(3)
		}
		_ = r.send(report{State: Running})
		select {}
	},
	"crashes": func(_ Task, _, reports *os.File) error {
		r := &reporter{to: reports}
		_ = r.send(report{State: Loading})
		_ = r.send(report{State: Running})
		_ = r.send(report{Frame: "frame 7: out of memory"})
		fmt.Fprintln(os.Stderr, "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\nSIGABRT: abort")
		os.Exit(2)
		return nil
	},
	"lies": func(_ Task, _, reports *os.File) error {
		r := &reporter{to: reports}
		_ = r.send(report{State: Running})
		_ = r.send(report{Failed: "nothing is loaded"})
		for range 1000 {
			_ = r.send(report{State: Loading})
			_ = r.send(report{State: "lost"})
			_ = r.send(report{Frame: "none"})
			_ = r.send(report{Steps: &Steps{Frames: 5, Run: 5}})
			_ = r.send(report{Steps: &Steps{Frames: 6, Run: -5}})
		}
		select {}
	},
}

// TestMain does what a process does if the command line says which.
func TestMain(m *testing.M) {
	if len(os.Args) < 3 || os.Args[1] != "process" {
		os.Exit(m.Run())
	}
	var t Task
	err := json.NewDecoder(os.Stdin).Decode(&t)
	if err == nil {
		err = processes[os.Args[2]](t, os.NewFile(3, "frames"), os.NewFile(4, "reports"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// A logbook keeps the lines of a log.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logbook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logbook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// newStage returns a stage with the given process, which has been started, and its log.
func newStage(t *testing.T, process string, providers ...string) (*Stage, *logbook) {
	t.Helper()
	log := &logbook{}
	s, err := NewStage(StageConfig{
		StageConfig: share.StageConfig{Name: "model", Logger: slog.New(slog.NewTextHandler(log, nil))},
		Infer:       Config{Model: "none", Every: 1},
		Providers:   providers,
		Command:     []string{"/proc/self/exe", "process", process},
	})
	if err != nil {
		t.Fatal(err)
	}
	f, err := pipeline.NewFormat(pipeline.Grey, 64, 48, pipeline.Rate{})
	if err == nil {
		err = s.Plan(f, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, os.ErrClosed) { // a test may have closed it
			t.Error(err)
		}
	})
	return s, log
}

// await waits until holds returns true. The time limit only ends a test that would hang.
func await(t *testing.T, s *Stage, what string, holds func(Status) bool) Status {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		st := s.Status()
		if holds(st) {
			return st
		}
		if time.Now().After(end) {
			t.Fatalf("in a minute not: %s: %+v", what, st)
		}
	}
}

// TestAProcessThatEndsIsStartedAgain checks that each kind of end is reported with its reason, and followed by a start.
func TestAProcessThatEndsIsStartedAgain(t *testing.T) {
	for process, reason := range map[string]string{
		"fails":                "exit status 1: no library is here",
		"panics":               "exit status 2: panic: an index is out of range",
		"ends":                 "it has ended by itself",
		"writes no report":     "a report of the model's process: invalid character",
		"writes a long report": "token too long",
		"writes much":          "exit status 1: that was much",
	} {
		t.Run(process, func(t *testing.T) {
			t.Parallel()
			s, log := newStage(t, process, "cpu")
			st := await(t, s, "a second start", func(st Status) bool { return st.Starts > 1 && st.Error != "" })
			if !strings.Contains(st.Error, reason) {
				t.Errorf("error %q, and must contain %q", st.Error, reason)
			}
			if n := strings.Count(log.String(), "will be started again") + strings.Count(log.String(), "cannot run the model"); n != 1 {
				t.Errorf("%d lines about the end:\n%s", n, log)
			}
			if log := log.String(); len(log) > 16<<10 || strings.Contains(log, "\x1b") {
				t.Errorf("a log of %d bytes:\n%.2000s", len(log), log)
			}
		})
	}
}

// TestAProviderThatFailsIsLeftOut has one provider that reports that it fails, and one that ends the process.
func TestAProviderThatFailsIsLeftOut(t *testing.T) {
	t.Parallel()
	s, log := newStage(t, "needs cpu", "tensorrt", "cuda", "cpu")
	st := await(t, s, "it runs", func(st Status) bool { return st.State == Running })
	if st.Provider != "cpu" || st.Starts != 3 || len(st.Failed) != 2 || st.Failed[0] != "tensorrt: no engine" || !strings.Contains(st.Failed[1], "exit status 3") {
		t.Errorf("%+v\n%s", st, log)
	}
	if n := strings.Count(log.String(), "a provider cannot run the model"); n != 2 {
		t.Errorf("%d lines about two providers:\n%s", n, log)
	}
}

// TestCrashesOfTheLastProviderEndNothing has a process that ends soon after it runs: each provider is left out after three
// of them, and after the last one all are tried again.
func TestCrashesOfTheLastProviderEndNothing(t *testing.T) {
	t.Parallel()
	const reason = "exit status 2: terminate called after throwing an instance of 'std::bad_alloc' what():  std::bad_alloc"
	two := &Stage{config: StageConfig{Providers: []string{"cuda", "cpu"}}, failed: map[string]string{}}
	for i, want := range []string{"", "", "cuda", "", "", "cpu", "", "", "cuda"} {
		two.status.Provider, two.status.State, two.status.Error = two.remaining()[0], Running, reason
		if provider, lost, _ := two.blame(i == 0); lost != (want != "") || lost && provider != want {
			t.Errorf("crash %d: %s is left out: %t, and it should be %q", i, provider, lost, want)
		}
	}
	s, log := newStage(t, "crashes", "cpu")
	st := await(t, s, "a third start", func(st Status) bool { return st.Starts > 2 && st.Error == reason })
	if len(st.Failed) != 0 {
		t.Errorf("%+v\n%s", st, log)
	}
}

// TestReportsThatCannotBe has a process that reports what did not happen.
func TestReportsThatCannotBe(t *testing.T) {
	t.Parallel()
	s, log := newStage(t, "lies", "cpu")
	st := await(t, s, "all reports", func(st Status) bool { return st.State == Loading && st.Steps.Frames == 5 })
	if st.Steps.Run != 5 || st.Starts != 1 || len(st.Failed) != 0 {
		t.Errorf("%+v", st)
	}
	if n := strings.Count(log.String(), "\n"); n > 4 {
		t.Errorf("%d lines:\n%s", n, log)
	}
}

// TestAStageEndsWithItsProcess ends stages whose process works, ignores signals, or is between two starts.
func TestAStageEndsWithItsProcess(t *testing.T) {
	for process, reached := range map[string]func(Status) bool{
		"works": func(st Status) bool { return st.State == Running },
		"hangs": func(st Status) bool { return st.State == Loading },
		"fails": func(st Status) bool { return st.Error != "" },
	} {
		t.Run(process, func(t *testing.T) {
			t.Parallel()
			s, _ := newStage(t, process, "cpu")
			await(t, s, "it is where it ends", reached)
			closed := make(chan error, 1)
			go func() { closed <- s.Close() }()
			select {
			case err := <-closed:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(time.Minute):
				t.Error("it does not end")
			}
		})
	}
}

// FuzzReports checks that no text of a process breaks the stage that reads it.
func FuzzReports(f *testing.F) {
	f.Add([]byte(`{"state":"loading","runtime":"1.17.0"}` + "\n" + `{"steps":{"frames":1}}` + "\n"))
	f.Add([]byte(`{"failed":"out of memory","frame":"frame 1: \u001b"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s := &Stage{config: StageConfig{StageConfig: share.StageConfig{Logger: slog.New(slog.DiscardHandler)}}, failed: map[string]string{}}
		failed := ""
		_ = readReports(io.LimitReader(bytes.NewReader(text), 1<<20), func(r report) { s.take(r, &failed) })
		if st := s.Status(); strings.ContainsAny(failed+st.Runtime+st.Error, "\x1b\x00") {
			t.Errorf("%+v", st)
		}
	})
}
