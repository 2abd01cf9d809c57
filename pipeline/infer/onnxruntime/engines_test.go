// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// cached returns the configuration of a session with an engine in its folder, whose lock file has a text, and the engine.
func cached(t *testing.T, text string) (c SessionConfig, engine string, log *strings.Builder) {
	t.Helper()
	cache, log := t.TempDir(), &strings.Builder{}
	folder := filepath.Join(cache, "abc-1x4")
	engine = filepath.Join(folder, "TensorrtExecutionProvider_1_0_sm87.engine")
	err := errors.Join(os.Mkdir(folder, 0o700), os.WriteFile(engine, nil, 0o600), os.WriteFile(filepath.Join(folder, lockName), []byte(text), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	c = SessionConfig{Model: "m.onnx", Digest: "abc", Provider: TensorRT, Cache: cache, Shape: []int64{1, 4}}
	c.Log = slog.New(slog.NewTextHandler(log, nil))
	return c, engine, log
}

func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Stat(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

// TestEnginesThatAreRemoved checks which errors and which crashes are an engine's fault, wherever the library reads it, and
// that the model runs once, or has an error.
func TestEnginesThatAreRemoved(t *testing.T) {
	for name, x := range map[string]struct {
		lock    string
		marker  string // the call that refuses to read the engine
		refused string // the call that fails for another reason
		fails   bool
		removed string // in the log; "": it is not removed
	}{
		"a good one":                       {},
		"one that cannot be read":          {marker: "CreateSession", removed: "they cannot be read"},
		"one that the first run reads":     {marker: "RunWithBinding", removed: "they cannot be read"},
		"a GPU without memory":             {refused: "CreateSession", fails: true},
		"a model that does not run":        {refused: "RunWithBinding", fails: true},
		"a crash":                          {lock: reading, removed: "a process ended while it read them"},
		"a crash while another was made":   {lock: making},
		"a crash, and it cannot be loaded": {lock: reading, refused: "CreateSession", fails: true, removed: "a process ended while it read them"},
	} {
		t.Run(name, func(t *testing.T) {
			c, engine, log := cached(t, x.lock)
			options := []string{"-DREFUSED=\"" + x.refused + "\""}
			if x.marker != "" {
				options = append(options, "-DMARKER=\""+engine+"\"", "-DREADER=\""+x.marker+"\"")
			}
			library, calls := double(t, options...)
			c.Bind = func(s *Session) error {
				_, err := s.BindInput(s.Inputs()[0])
				return err
			}
			s, err := opened(t, library).NewSession(t.Context(), c)
			if (err != nil) != x.fails || errors.Is(err, ErrProvider) != x.fails {
				t.Fatal(err)
			}
			if exists(t, engine) != (x.removed == "") || !strings.Contains(log.String(), x.removed) {
				t.Errorf("the engine is there: %v\n%s", exists(t, engine), log)
			}
			if text, err := os.ReadFile(filepath.Join(filepath.Dir(engine), lockName)); err != nil || len(text) > 0 {
				t.Errorf("the lock file says %q, %v", text, err)
			}
			if s != nil {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
			all := calls()
			if all[len(all)-1] != "ReleaseSessionOptions 1" && all[len(all)-1] != "ReleaseSession 1" {
				t.Errorf("objects stay: %s", strings.Join(all, "\n"))
			}
			if runs := strings.Count(strings.Join(all, "\n"), "RunWithBinding"); !x.fails && x.marker != "RunWithBinding" && runs != 1 {
				t.Errorf("it ran %d times", runs)
			}
		})
	}
}

// TestALoadThatIsInterrupted ends the context while engines are read: the process may be killed then.
func TestALoadThatIsInterrupted(t *testing.T) {
	c, engine, _ := cached(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	e, err := openEngines(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	defer e.close()
	said := func() string {
		text, err := os.ReadFile(filepath.Join(filepath.Dir(engine), lockName))
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
	_, err = e.use(ctx, func() (*Session, error) {
		if said() != reading {
			t.Errorf("the lock file says %q", said())
		}
		cancel()
		for end := time.Now().Add(time.Minute); said() != "" && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		if said() != "" {
			t.Error("a kill would be taken for a crash")
		}
		return nil, ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestProcessesLoadOneAfterTheOther checks that a process waits while another one works in the folder, unless it ends.
func TestProcessesLoadOneAfterTheOther(t *testing.T) {
	c, _, _ := cached(t, "")
	first, err := openEngines(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := openEngines(ctx, c); !errors.Is(err, context.Canceled) {
		t.Errorf("a second one: %v", err)
	}
	other := c
	other.Shape = []int64{1, 5}
	if e, err := openEngines(ctx, other); err != nil {
		t.Errorf("another shape: %v", err)
	} else {
		e.close()
	}
	opens := make(chan error)
	go func() {
		e, err := openEngines(t.Context(), c)
		if err == nil {
			e.close()
		}
		opens <- err
	}()
	first.close()
	if err := <-opens; err != nil {
		t.Error(err)
	}
}

// TestOldEnginesAreRemoved checks that the folders of the models that were loaded last stay, and what is no such folder.
func TestOldEnginesAreRemoved(t *testing.T) {
	c, engine, log := cached(t, "")
	if err := errors.Join(os.WriteFile(filepath.Join(c.Cache, "kernel.cubin"), nil, 0o600), os.Mkdir(filepath.Join(c.Cache, "other"), 0o700)); err != nil {
		t.Fatal(err)
	}
	folder := func(n int) string { return filepath.Join(c.Cache, fmt.Sprintf("%x-1x%d", n, n)) }
	old := time.Now().Add(-1000 * time.Hour)
	for n := range 12 { // the last was loaded last
		lock := filepath.Join(folder(n), lockName)
		at := old.Add(time.Duration(n) * time.Hour)
		if err := errors.Join(os.Mkdir(folder(n), 0o700), os.WriteFile(lock, nil, 0o600), os.Chtimes(lock, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(filepath.Join(filepath.Dir(engine), lockName), old, old); err != nil { // it was loaded before all
		t.Fatal(err)
	}
	busy, err := lock(t.Context(), folder(2))
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	e, err := openEngines(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.use(t.Context(), func() (*Session, error) { return nil, nil })
	if e.close(); err != nil {
		t.Fatal(err)
	}
	var left []int
	for n := range 12 {
		if exists(t, folder(n)) {
			left = append(left, n)
		}
	}
	if strings.Contains(log.String(), "cannot be removed") || !slices.Equal(left, []int{2, 5, 6, 7, 8, 9, 10, 11}) {
		t.Errorf("%v stay: %s", left, log)
	}
	if !exists(t, engine) || !exists(t, filepath.Join(c.Cache, "kernel.cubin")) || !exists(t, filepath.Join(c.Cache, "other")) {
		t.Error("too much is removed")
	}
	if info, err := os.Stat(filepath.Join(filepath.Dir(engine), lockName)); err != nil || time.Since(info.ModTime()) > time.Hour {
		t.Errorf("its time is that of an old load: %v", err)
	}
}
