// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

// TestCopiedPrivateFile checks that the private mapping of a read-only file still gets a copy of a pinned page on a
// write, and that the pin of the original page is revoked.
func TestCopiedPrivateFile(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, b []byte){
		"mprotect and back": func(t *testing.T, b []byte) {
			call(t, "mprotect", unix.SYS_MPROTECT, uintptr(address(b)), page, readWrite)
			b[0] = 42
			call(t, "mprotect", unix.SYS_MPROTECT, uintptr(address(b)), page, unix.PROT_READ)
		},
		"debugger": func(t *testing.T, b []byte) {
			f, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteAt([]byte{42}, int64(address(b))); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			noLeak(t)
			d := open(t).live(t)
			revoked := d.event(t, uapi.EventRevoke)
			b := mapping(t, memfd(t, page, 0), page, unix.PROT_READ, unix.MAP_PRIVATE)
			p, _, err := d.pin(b, uapi.PinToDevice)
			if err != nil {
				t.Fatal(err)
			}
			change(t, b)
			if b[0] != 42 {
				t.Fatalf("the memory has %d", b[0])
			}
			revoked.wait(t)
			d.live(t).put(t, p.Handle)
		})
	}
}
