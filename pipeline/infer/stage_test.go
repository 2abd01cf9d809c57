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

// processes are what the process of a stage may do, in place of Work. They get its configuration.
var processes = map[string]func(c Config, frames, reports *os.File) error{
	"work": work,
	"works": func(c Config, frames, reports *os.File) error {
		r := reporter{to: reports}
		if err := r.send(report{State: Running, Provider: c.Providers[0], Runtime: "1.17.0"}); err != nil {
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
	"fails": func(Config, *os.File, *os.File) error { return errors.New("no library is here") },
	"panics": func(_ Config, _, reports *os.File) error {
		_ = (&reporter{to: reports}).send(report{State: Loading, Provider: "cpu"})
		panic("an index is out of range")
	},
	"ends": func(Config, *os.File, *os.File) error { return nil },
	"hangs": func(_ Config, _, reports *os.File) error {
		signal.Ignore(os.Interrupt)
		_ = (&reporter{to: reports}).send(report{State: Loading, Provider: "cpu"})
		select {}
	},
	"writes no report": func(_ Config, _, reports *os.File) error {
		_, _ = fmt.Fprintln(reports, "ready")
		time.Sleep(time.Hour)
		return nil
	},
	"writes a long report": func(_ Config, _, reports *os.File) error {
		_, _ = reports.Write(bytes.Repeat([]byte(" "), 2*maxReport))
		time.Sleep(time.Hour)
		return nil
	},
	"writes much": func(Config, *os.File, *os.File) error {
		for range 1000 {
			fmt.Fprintln(os.Stderr, strings.Repeat("\x1b[31mred ", 1000))
		}
		return errors.New("that was much")
	},
	"needs cpu": func(c Config, frames, reports *os.File) error {
		r := &reporter{to: reports}
		for _, p := range c.Providers {
			_ = r.send(report{State: Loading, Provider: p})
			switch p {
			case "tensorrt":
				_ = r.send(report{Failed: &failed{p, "no engine"}})
			case "cuda": // ends the process
				os.Exit(3)
			case "cpu":
				_ = r.send(report{State: Running, Provider: p})
				select {}
			}
		}
		return nil
	},
}

// TestMain does what a process does if the command line says which.
func TestMain(m *testing.M) {
	if len(os.Args) < 3 || os.Args[1] != "process" {
		os.Exit(m.Run())
	}
	var c Config
	err := json.NewDecoder(os.Stdin).Decode(&c)
	if err == nil {
		err = processes[os.Args[2]](c, os.NewFile(3, "frames"), os.NewFile(4, "reports"))
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
		Infer:       Config{Model: "none", Providers: providers, Every: 1},
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
			if n := strings.Count(log.String(), "will be started again"); n != 1 {
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
	s, log := newStage(t, "needs cpu", "tensorrt", "cuda", "cpu")
	st := await(t, s, "it runs", func(st Status) bool { return st.State == Running })
	if st.Provider != "cpu" || st.Starts != 2 || len(st.Failed) != 2 || st.Failed[0] != "tensorrt: no engine" || !strings.Contains(st.Failed[1], "exit status 3") {
		t.Errorf("%+v\n%s", st, log)
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
	f.Add([]byte(`{"state":"running","provider":"cpu","runtime":"1.17.0"}` + "\n" + `{"steps":{"frames":1}}` + "\n"))
	f.Add([]byte(`{"failed":{"provider":"cuda","error":"out of memory"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s := &Stage{config: StageConfig{StageConfig: share.StageConfig{Logger: slog.New(slog.DiscardHandler)}}, failed: map[string]string{}}
		s.config.Infer.Providers = []string{"cuda", "cpu"}
		_ = readReports(io.LimitReader(bytes.NewReader(text), 1<<20), s.take)
		if st := s.Status(); strings.ContainsAny(st.Provider+st.Runtime+st.Error, "\x1b\x00") {
			t.Errorf("%+v", st)
		}
	})
}
