// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A File is a file of a recording that is read. When the file is deleted it is closed, so that its disk space is free at
// once.
type File struct {
	*os.File
	of    *openedFiles // nil: nobody deletes it
	info  os.FileInfo  // when it was opened; only if of is not nil
	users atomic.Int32 // that have not called Close
	since atomic.Int64 // when the call of ReadAt began that has not returned, in ns; 0: there is none
	at    atomic.Int64 // the offset of the last call
}

// ReadAt implements io.ReaderAt.
func (f *File) ReadAt(b []byte, off int64) (int, error) {
	f.at.Store(off)
	f.since.Store(time.Now().UnixNano())
	defer f.since.Store(0)
	return f.File.ReadAt(b, off)
}

// Close closes the file when its last user has called it. That it was closed because it was deleted is no error.
func (f *File) Close() error {
	if f.users.Add(-1) > 0 {
		return nil
	}
	if f.of != nil {
		f.of.remove(f)
	}
	if err := f.File.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// use adds a user, who must call Close too.
func (f *File) use() { f.users.Add(1) }

// newFile returns a file with one user.
func newFile(plain *os.File, of *openedFiles) *File {
	f := &File{File: plain, of: of}
	f.use()
	return f
}

// openedFiles are the files of a recording that are read.
type openedFiles struct {
	mu   sync.Mutex
	list []*File
}

// open opens a file. The error wraps ErrNoFile if it was deleted meanwhile.
func (o *openedFiles) open(own ownFile) (*File, error) {
	plain, err := openOwn(own)
	if err != nil {
		return nil, err
	}
	f := newFile(plain, o)
	o.mu.Lock()
	o.list = append(o.list, f)
	o.mu.Unlock()
	// After the file is in the list, so that it is closed if it is deleted from now on.
	if f.info, err = plain.Stat(); err == nil && f.info.Sys().(*syscall.Stat_t).Nlink == 0 || errors.Is(err, os.ErrClosed) {
		err = ErrNoFile
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (o *openedFiles) remove(f *File) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.list = slices.DeleteFunc(o.list, func(x *File) bool { return x == f })
}

// close closes the files of a path, which was deleted: what reads them fails. o may be nil.
func (o *openedFiles) close(path string) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, f := range o.list {
		if f.Name() == path {
			_ = f.File.Close() // it was only read
		}
	}
}

// An answer holds the results of a function.
type answer[T any] struct {
	result T
	err    error
}

// begin calls do in another goroutine, and sends what it returns. When ctx has ended, nobody takes that: a result that
// can be closed is closed.
func begin[T any](ctx context.Context, do func() (T, error)) <-chan answer[T] {
	done := make(chan answer[T])
	go func() {
		result, err := do()
		select {
		case done <- answer[T]{result, err}:
		case <-ctx.Done():
			if c, is := any(result).(io.Closer); is && err == nil {
				_ = c.Close() // it was only read
			}
		}
	}()
	return done
}

// patiently calls do, which reads a file of a folder, and returns its results, however long it takes. It returns an
// error that wraps ErrHangs instead if the disk does not answer one read in time. The disk then hangs until do returns.
func patiently[T any](d *folder, f *File, do func() (T, error)) (T, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	over, ended := context.WithCancel(context.Background())
	done := begin(ctx, func() (T, error) {
		defer ended()
		return do()
	})
	tick := time.NewTicker(statPatience / 10)
	defer tick.Stop()
	for {
		select {
		case a := <-done:
			return a.result, a.err
		case now := <-tick.C:
			ns := f.since.Load()
			if since := time.Unix(0, ns); ns != 0 && now.Sub(since) > statPatience {
				context.AfterFunc(over, d.disks.add(d.directory, "reading "+filepath.Base(f.Name()), since))
				return answer[T]{}.result, fmt.Errorf("%w: a read of %s has waited for %v: check the disk", ErrHangs, f.Name(), statPatience)
			}
		}
	}
}
