// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// cached reports whether a page of a file is in the page cache.
func cached(t *testing.T, path string, at int64) bool {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	_, err = unix.Preadv2(int(f.Fd()), [][]byte{make([]byte, page)}, at, unix.RWF_NOWAIT)
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skipf("NEEDS a file system in %s that has RWF_NOWAIT: %v", os.TempDir(), err)
	}
	return !errors.Is(err, unix.EAGAIN)
}

// TestVideoWritesDirectly checks that a file has what was written to it, wherever writes begin and end, and that whole
// pages of a long write do not pass through the page cache.
func TestVideoWritesDirectly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.mp4")
	plain, err := create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = plain.Close() }()
	g := &videoFile{plain: plain, video: &Video{}}
	random := rand.New(rand.NewPCG(1, 2))
	memory := make([]byte, 1<<20)
	for i := range memory {
		memory[i] = byte(random.Uint32())
	}
	var want []byte
	direct := int64(0)
	for i := range 100 {
		lead := int(g.end % page)
		if i%5 == 4 {
			lead = random.IntN(page)
		}
		b := memory[lead:][:random.IntN(4*minDirect)]
		if whole := (lead + len(b)) &^ (page - 1); whole >= minDirect+2*page && i%5 != 4 {
			direct = g.end + minDirect/2
		}
		if n, err := g.Write(b); err != nil || n != len(b) {
			t.Fatal(n, err)
		}
		want = append(want, b...)
	}
	if direct == 0 {
		t.Fatal("no write was long enough")
	}
	if flags, err := unix.FcntlInt(plain.Fd(), unix.F_GETFL, 0); err != nil || flags&unix.O_DIRECT != 0 {
		t.Errorf("flags %#x, %v", flags, err)
	}
	if !g.cached && cached(t, path, direct&^(page-1)) {
		t.Errorf("the page at %d is in the page cache", direct)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes of %d, or others: %v", len(got), len(want), err)
	}
}
