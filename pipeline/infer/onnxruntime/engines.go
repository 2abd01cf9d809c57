// SPDX-License-Identifier: Apache-2.0

package onnxruntime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// mostFolders limits the folders with engines. Those of the models that were loaded last are kept.
const mostFolders = 8

// lockName is the file of a folder that a process locks while it works there. Its time is that of the last load.
const lockName = "lock"

// What the lock file says during a load. Reading is left there by a process that has crashed meanwhile.
const (
	reading = "reading"
	making  = "making"
)

// engines is the folder in which TensorRT keeps its engines of a model and a shape of its input. ONNX Runtime names them by
// the model's name alone. A process works there alone.
type engines struct {
	folder string
	lock   *os.File
	log    *slog.Logger
}

// openEngines prepares the folder. It waits while another process loads the same model, and removes engines with which a
// process has crashed. The caller must close it.
func openEngines(ctx context.Context, c SessionConfig) (*engines, error) {
	if c.Digest == "" || strings.Trim(c.Digest, "0123456789abcdef") != "" {
		return nil, fmt.Errorf("engines are kept by the model's digest, and %q is none", c.Digest)
	}
	folder := filepath.Join(c.Cache, c.Digest+strings.NewReplacer("[", "-", "]", "", " ", "x").Replace(fmt.Sprint(c.Shape)))
	e := &engines{folder: folder, log: c.Log.With("model", c.Model, "folder", folder)}
	err := os.MkdirAll(folder, 0o700)
	if err == nil {
		e.lock, err = lock(ctx, folder)
	}
	if err != nil {
		return nil, fmt.Errorf("engines of TensorRT: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(e.lock, int64(len(reading)+1)))
	if err == nil && string(text) == reading {
		err = e.remove("a process ended while it read them", nil)
	}
	if err != nil {
		e.close()
		return nil, err
	}
	if err := e.prune(c.Cache); err != nil {
		e.log.Warn("old engines of TensorRT cannot be removed", "error", err)
	}
	return e, nil
}

// lock opens and locks the lock file of a folder. It waits until ctx ends.
func lock(ctx context.Context, folder string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(folder, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(err, f.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), f.Close())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// close lets other processes work in the folder.
func (e *engines) close() { _ = e.lock.Close() } // its text has been written

// use loads a model with the engines of the folder, or with new ones, and reports while they are being made. Engines that
// cannot be read, as those of another release of TensorRT, are removed once.
func (e *engines) use(ctx context.Context, load func() (*Session, error)) (*Session, error) {
	for {
		made, err := e.made()
		if err != nil {
			return nil, err
		}
		s, err := e.try(ctx, made, load)
		if !made || !unreadable(err) {
			return s, err
		}
		if err := e.remove("they cannot be read", err); err != nil {
			return nil, err
		}
	}
}

// try loads a model. Meanwhile the lock file says so, unless the process is told to end.
func (e *engines) try(ctx context.Context, made bool, load func() (*Session, error)) (*Session, error) {
	state, about := making, "TensorRT makes an engine for this GPU, once; it takes minutes"
	if made {
		state, about = reading, "TensorRT reads engines, or makes some again; this takes minutes"
	}
	if err := e.say(state); err != nil {
		return nil, err
	}
	told := context.AfterFunc(ctx, func() { _ = e.say("") }) // else good engines are removed
	stop := every(10*time.Second, func(elapsed time.Duration) {
		if elapsed > 0 || !made {
			e.log.Info(about, "elapsed", elapsed)
		}
	})
	s, err := load()
	stop()
	told()
	if bad := e.say(""); bad != nil {
		e.log.Warn("TensorRT's engines will be made again at the next start", "error", bad)
	}
	return s, err
}

// say writes the text of the lock file.
func (e *engines) say(text string) error {
	_, err := e.lock.WriteAt([]byte(text), 0)
	return errors.Join(err, e.lock.Truncate(int64(len(text))))
}

// made reports whether there are engines.
func (e *engines) made() (bool, error) {
	files, err := os.ReadDir(e.folder)
	return slices.ContainsFunc(files, func(f os.DirEntry) bool { return filepath.Ext(f.Name()) == ".engine" }), err
}

// unreadable reports whether an error of the library is about an engine that it has read. The text is that of
// tensorrt_execution_provider.cc.
func unreadable(err error) bool {
	status := (*StatusError)(nil)
	return errors.As(err, &status) && strings.Contains(strings.ToLower(status.Text), "could not deserialize engine")
}

// remove removes the engines and what belongs to them.
func (e *engines) remove(why string, cause error) error {
	e.log.Warn("TensorRT's engines are removed and made again: "+why, "error", cause)
	files, err := os.ReadDir(e.folder)
	for _, f := range files {
		if f.Name() != lockName {
			err = errors.Join(err, os.RemoveAll(filepath.Join(e.folder, f.Name())))
		}
	}
	return err
}

// prune removes the folders of the models that were not loaded for the longest time.
func (e *engines) prune(cache string) error {
	folders, err := os.ReadDir(cache)
	loaded := map[string]time.Time{}
	for _, f := range folders {
		if info, err := os.Stat(filepath.Join(cache, f.Name(), lockName)); err == nil && f.Name() != filepath.Base(e.folder) {
			loaded[f.Name()] = info.ModTime()
		}
	}
	names := slices.SortedFunc(maps.Keys(loaded), func(a, b string) int { return loaded[b].Compare(loaded[a]) })
	for _, name := range names[min(len(names), mostFolders-1):] {
		err = errors.Join(err, removeUnlessBusy(filepath.Join(cache, name)))
	}
	return err
}

// removeUnlessBusy removes a folder in which no process works.
func removeUnlessBusy(folder string) error {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	f, err := lock(ended, folder)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(folder), f.Close())
}

// every calls do at once and then at each period, with the time since the first call, until stop is called.
func every(period time.Duration, do func(elapsed time.Duration)) (stop func()) {
	end, ended, began := make(chan struct{}), make(chan struct{}), time.Now()
	go func() {
		defer close(ended)
		t := time.NewTicker(period)
		defer t.Stop()
		do(0)
		for {
			select {
			case <-end:
				return
			case <-t.C:
				do(time.Since(began).Round(time.Second))
			}
		}
	}()
	return func() {
		close(end)
		<-ended // ends: the goroutine sees end
	}
}
