// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tegracast/tegracast/cudahost/cufile/hangtest"
	"github.com/tegracast/tegracast/pipeline"
)

func TestHangingDiskServer(t *testing.T) { hangtest.Serve(t) }

// lines is a log that may be read while it is being written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// hangingRig is a graph with a recording on a disk that sometimes hangs, and one on a disk that never does.
type hangingRig struct {
	*pipeline.Graph
	disk   *hangtest.Disk
	disks  Disks
	log    lines
	pool   *pipeline.Pool
	out    map[string]*pipeline.Output
	folder map[string]string
	ended  chan error
	stop   context.CancelFunc
}

func startHanging(t *testing.T, patience time.Duration) *hangingRig {
	t.Helper()
	f := format(t, pipeline.RGGB10, 320, 240)
	driver := storage(t) // closed after the disk is removed, so that a test that fails does not wait for it
	r := &hangingRig{
		disk: hangtest.Mount(t), pool: slots(t, f, 40), out: map[string]*pipeline.Output{}, ended: make(chan error, 1),
	}
	r.folder = map[string]string{"hangs": r.disk.Dir, "other": t.TempDir()}
	log := slog.New(slog.NewTextHandler(&r.log, nil))
	r.Graph = pipeline.NewGraph(pipeline.GraphConfig{Logger: log})
	if err := r.AddSource("camera", &source{f, r.pool, 1 << 30, 5 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	for name, folder := range r.folder {
		var last *Sink
		open := func(context.Context) (pipeline.Sink, error) {
			if last != nil {
				if err := last.Close(); err != nil {
					t.Error(err)
				}
			}
			s, err := New(Config{Directory: folder, Name: name, Driver: driver, Sync: 20 * time.Millisecond, Disks: &r.disks, Logger: log.With("output", name)}, f)
			if err == nil && name == "hangs" {
				s.patience = patience
			}
			last = s
			return s, err
		}
		sink, err := open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if r.out[name], err = r.Attach(pipeline.OutputConfig{Name: name, From: "camera", Sink: sink, Depth: 4, Reopen: open}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	go func() { r.ended <- r.Run(ctx) }()
	return r
}

// until waits until a condition is true.
func (r *hangingRig) until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for began := time.Now(); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("not %s: %+v, %+v\n%s", what, r.out["hangs"].Stats(), r.out["other"].Stats(), r.log.String())
		}
	}
}

// written waits until an output has written more frames.
func (r *hangingRig) written(t *testing.T, name string, more uint64) {
	t.Helper()
	before := r.out[name].Stats().Delivered
	r.until(t, name+" writes", func() bool { return r.out[name].Stats().Delivered >= before+more })
}

// verified checks the files of a recording, of which the given number are finished, and returns their number.
func verified(t *testing.T, folder, name string, finished int) {
	t.Helper()
	list, err := Files(folder, name)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, path := range list {
		r, err := Inspect(t.Context(), path, true, func(float64) {})
		if err != nil || r.Frames == 0 {
			t.Errorf("%s: %+v, %v", path, r, err)
		}
		if err == nil && r.Finished && r.Good() {
			n++
		}
	}
	if n != finished {
		t.Errorf("%d of %v are finished, want %d", n, list, finished)
	}
}

// TestADiskThatHangs checks that its output has failed, and delays no other one. When the disk answers again, the file
// is closed, and the output continues with another one.
func TestADiskThatHangs(t *testing.T) {
	t.Parallel()
	r := startHanging(t, time.Second)
	defer r.stop()
	r.written(t, "hangs", 20)
	r.disk.HangWholly(t)
	began := time.Now()
	r.until(t, "noticed", func() bool { return r.out["hangs"].Status().State == pipeline.Retrying })
	if d := time.Since(began); d > 8*time.Second {
		t.Errorf("noticed after %v", d)
	}
	file, err := Files(r.disk.Back, "hangs")
	if err != nil || len(file) != 1 {
		t.Fatal(file, err)
	}
	path := filepath.Join(r.disk.Dir, filepath.Base(file[0]))
	if why := r.out["hangs"].Err(); !errors.Is(why, ErrHangs) || !strings.Contains(why.Error(), path) {
		t.Errorf("it has failed by %v", why)
	}
	if !strings.Contains(r.log.String(), "a recording is not closed") || !strings.Contains(r.log.String(), "file="+path) {
		t.Errorf("the log:\n%s", r.log.String())
	}
	r.written(t, "other", 100)
	r.until(t, "tried again", func() bool { return r.out["hangs"].Stats().Faults >= 3 })
	if !strings.Contains(r.out["hangs"].Err().Error(), "since") || !r.disks.Hanging() {
		t.Errorf("tried again, it fails by %v", r.out["hangs"].Err())
	}
	r.disk.Answer(t)
	r.until(t, "closed", func() bool { return strings.Contains(r.log.String(), "the disk answers again") })
	verified(t, r.disk.Back, "hangs", 1)
	r.out["hangs"].Retry()
	r.written(t, "hangs", 20)
	r.stop()
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
	verified(t, r.disk.Back, "hangs", 2)
	verified(t, r.folder["other"], "other", 1)
	for _, o := range r.out {
		if st := o.Stats(); st.Captured != st.Delivered+st.Drops() {
			t.Errorf("%+v", st)
		}
	}
	if err := errors.Join(r.Close(), r.pool.Close()); err != nil || r.disks.Hanging() {
		t.Error(err)
	}
}

// TestTheEndDoesNotWaitForADisk checks that a recording on a disk that hangs ends in time, with its graph or on its
// own, and that its file can be read without its end.
func TestTheEndDoesNotWaitForADisk(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testing.T, *hangingRig){
		"its graph's": func(t *testing.T, r *hangingRig) {},
		"its own": func(t *testing.T, r *hangingRig) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			if st := r.out["hangs"].Detach(ctx); st.Captured != st.Delivered+st.Drops() || time.Since(began) > 8*time.Second {
				t.Errorf("after %v: %+v", time.Since(began), st)
			}
			r.written(t, "other", 20)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startHanging(t, diskPatience)
			defer r.stop()
			r.written(t, "hangs", 20)
			r.disk.Hang(t)
			time.Sleep(100 * time.Millisecond)
			end(t, r)
			began := time.Now()
			r.stop()
			if err := <-r.ended; err != nil || time.Since(began) > 8*time.Second {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
			if !r.disks.Hanging() || r.pool.Leased() == 0 {
				t.Error("nothing waits for the disk, it seems")
			}
			verified(t, r.disk.Back, "hangs", 0)
			verified(t, r.folder["other"], "other", 1)
			r.disk.Answer(t)
			r.until(t, "closed", func() bool { return !r.disks.Hanging() })
			verified(t, r.disk.Back, "hangs", 1)
			if err := errors.Join(r.Close(), r.pool.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestADiskThatHangsFromTheBeginning checks that opening a recording there does not block, but fails until the disk
// answers.
func TestADiskThatHangsFromTheBeginning(t *testing.T) {
	t.Parallel()
	driver := storage(t)
	d, f := hangtest.Mount(t), format(t, pipeline.RGGB10, 320, 240)
	var disks Disks
	d.HangWholly(t)
	for i := range 3 {
		began := time.Now()
		s, err := New(Config{Directory: d.Dir, Name: "rec", Driver: driver, Disks: &disks, Logger: slog.New(slog.DiscardHandler)}, f)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 2*statPatience || i > 0 && took > statPatience/2 {
			t.Errorf("opening takes %v", took)
		}
		if err := s.Run(t.Context(), pipeline.NewQueue(1, pipeline.Latest, pipeline.NewAccount("rec", nil))); !errors.Is(err, ErrHangs) {
			t.Errorf("it runs: %v", err)
		}
	}
	d.Answer(t)
	for began := time.Now(); disks.Hanging() && time.Since(began) < time.Minute; time.Sleep(time.Millisecond) {
	}
	s, err := New(Config{Directory: d.Dir, Name: "rec", Driver: driver, Disks: &disks}, f)
	if err != nil || s.hangs != nil {
		t.Fatal(err, s.hangs)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := New(Config{Directory: filepath.Join(d.Dir, "none"), Name: "rec", Driver: driver, Disks: &disks}, f); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestManyDisksHangAtTheEnd checks that recordings on disks that hang are closed in the time of one.
func TestManyDisksHangAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all, began := &Recordings{}, time.Now()
		for _, name := range []string{"a", "b", "c"} {
			v := &Video{folder: folder{name: name}, queue: make(chan videoPicture), closing: make(chan struct{}), ended: make(chan struct{})}
			defer close(v.ended) // the disks answer
			all.Add(v)
		}
		all.End()
		for _, s := range all.named("") {
			if err := all.Remove(s); !errors.Is(err, ErrHangs) {
				t.Error(err)
			}
		}
		if took := time.Since(began); took != closePatience {
			t.Errorf("after %v", took)
		}
	})
}
