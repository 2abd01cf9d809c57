// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// opened opens all pictures of a recording.
func opened(t *testing.T, all *Recordings, name string) *Clip {
	t.Helper()
	c, err := all.OpenClip(t.Context(), name, Position{}, Position{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestVideosAreReadOnce checks that the tables of a file are kept while it does not change, and that those of a file
// that grows are completed.
func TestVideosAreReadOnce(t *testing.T) {
	all, v, dir, names := cataloged(t, nil)
	videos := &all.catalogs["rec"].videos
	last := func() *parsedVideo { return videos.list[len(videos.list)-1] }
	for _, name := range []string{names[1], names[0]} {
		first := opened(t, all, name)
		defer first.Close()
		kept := last()
		if second := opened(t, all, name); last() != kept || second.Len() != first.Len() || second.Close() != nil {
			t.Errorf("%s is read twice", name)
		}
	}
	before := last()
	for n := range uint64(10) {
		offer(v, 95+n)
	}
	await(t, func() bool { return v.frames.Load() == 105 })
	grown := opened(t, all, names[0])
	defer grown.Close()
	if after := last(); after == before || after.file.Len() <= before.file.Len() || len(videos.list) != 2 || !after.growing {
		t.Errorf("%d pictures, then %d; %d files", before.file.Len(), after.file.Len(), len(videos.list))
	}
	path := filepath.Join(dir, names[1])
	if err := os.Chtimes(path, time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	kept := videos.list[0]
	other := opened(t, all, names[1])
	defer other.Close()
	if slices.Contains(videos.list, kept) || len(videos.list) != 2 {
		t.Error("a file that has changed is not read again")
	}
	for range keptFiles {
		p := &parsedVideo{in: other.plain, file: before.file}
		videos.list = append(videos.list, p)
		videos.finish(p)
	}
	if n := len(videos.list); n != keptFiles {
		t.Errorf("%d files are kept, want %d", n, keptFiles)
	}
}

// TestVideosAreForgotten checks that the tables of a file are kept for a while after it was last asked for, and those of
// a file that cannot be read not at all.
func TestVideosAreForgotten(t *testing.T) {
	all, _, _, names := cataloged(t, nil)
	plain, err := all.Open(names[1])
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	synctest.Test(t, func(t *testing.T) {
		p, d := &parsedVideos{turn: make(chan struct{}, 1)}, &folder{}
		kept := func() int {
			p.mu.Lock()
			defer p.mu.Unlock()
			return len(p.list)
		}
		for range 3 {
			if f, err := p.of(t.Context(), d, plain); err != nil || f.Len() != 30 || kept() != 1 {
				t.Fatal(f, err)
			}
			time.Sleep(keptTime - time.Second)
		}
		time.Sleep(2 * time.Second)
		if synctest.Wait(); kept() > 0 {
			t.Error("it is kept for ever")
		}
		bad := newFile(closedFile(t), nil)
		bad.info = plain.info
		if f, err := p.of(t.Context(), d, bad); err == nil || kept() > 0 {
			t.Error(f, err)
		}
	})
}

// closedFile returns a file that cannot be read, named a.mp4.
func closedFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "a.mp4"))
	if err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	return f
}

// closer counts how often it was closed.
type closer struct{ atomic.Int32 }

func (c *closer) Close() error {
	c.Add(1)
	return nil
}

// TestAsLongAsTheDiskAnswers checks that to read a file may take any time, but not a single read of it.
func TestAsLongAsTheDiskAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, f := &folder{directory: "/x", disks: &Disks{}}, &File{File: closedFile(t)}
		var closed closer
		read := func(each time.Duration) (*closer, error) {
			return patiently(d, f, func() (*closer, error) {
				for range 100 {
					f.since.Store(time.Now().UnixNano())
					time.Sleep(each)
					f.since.Store(0)
				}
				return &closed, nil
			})
		}
		if c, err := read(statPatience * 9 / 10); err != nil || c != &closed || closed.Load() > 0 {
			t.Errorf("a slow disk: %v", err)
		}
		began := time.Now()
		_, err := read(time.Minute)
		if took := time.Since(began); !errors.Is(err, ErrHangs) || !strings.Contains(err.Error(), "a.mp4") || took > 2*statPatience {
			t.Errorf("a disk that hangs: %v after %v", err, took)
		}
		if err := d.disks.Hang("/x"); !errors.Is(err, ErrHangs) || !strings.Contains(err.Error(), "reading a.mp4") {
			t.Error(err)
		}
		time.Sleep(100 * time.Minute)
		synctest.Wait()
		if d.disks.Hanging() || closed.Load() != 1 {
			t.Errorf("the disk answers again, hangs: %v, closed: %d", d.disks.Hanging(), closed.Load())
		}
	})
}

// TestReadingGoesOn checks that who does not wait for a file to be read finds it read later.
func TestReadingGoesOn(t *testing.T) {
	all, _, _, names := cataloged(t, nil)
	videos := &all.catalogs["rec"].videos
	videos.turn <- struct{}{}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := all.OpenClip(ctx, names[1], Position{}, Position{}); !errors.Is(err, ErrReading) {
		t.Error(err)
	}
	<-videos.turn
	for tries := 0; ; tries++ { // whether it waits is open when both are ready
		_, err := all.OpenClip(ctx, names[1], Position{}, Position{})
		if errors.Is(err, ErrReading) && len(videos.list) > 0 {
			break
		} else if err != nil && !errors.Is(err, ErrReading) || tries > 1000 {
			t.Fatal(err)
		}
	}
	await(t, func() bool { c := opened(t, all, names[1]); return c.Close() == nil && c.Len() == 30 })
}
