// SPDX-License-Identifier: Apache-2.0

package cudahost

import (
	"bufio"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"unsafe"
)

// TestWholeHugePages checks that huge pages are requested for a whole frame, including its last part, unless that would
// take much more memory.
func TestWholeHugePages(t *testing.T) {
	a, err := Open(Config{Backend: "host", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for size, huge := range map[int]int{1920 * 1080 * 2: 2, 3840 * 2160 * 2: 8, 2200 << 10: 1, 1 << 20: 0} {
		b, err := a.AllocHost(size, 0)
		if err != nil {
			t.Fatal(err)
		}
		at := uintptr(unsafe.Pointer(&b.Bytes()[0]))
		if got := advised(t, at) / hugePage; got != huge || huge > 0 && at%hugePage != 0 {
			t.Errorf("%d bytes at %#x: %d huge pages, want %d", size, at, got, huge)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// advised returns the number of bytes after an address for which huge pages were requested.
func advised(t *testing.T, at uintptr) (bytes int) {
	t.Helper()
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var from, to uintptr
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var a, b uintptr
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x ", &a, &b); n == 2 {
			from, to = a, b
			continue
		}
		if flags, is := strings.CutPrefix(lines.Text(), "VmFlags:"); is && from == at && strings.Contains(flags+" ", " hg ") {
			bytes += int(to - from)
			at = to
		}
	}
	return bytes
}
