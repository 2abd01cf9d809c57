// SPDX-License-Identifier: Apache-2.0

package cudahost

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// mapToRead maps the file of a Shared buffer, as another process would.
func mapToRead(t *testing.T, fd uintptr) []byte {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(fd), &st); err != nil {
		t.Fatal(err)
	}
	m, err := unix.Mmap(int(fd), 0, int(st.Size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(m); err != nil {
			t.Error(err)
		}
	})
	return m
}

// TestRegisterReadOnly checks that a read-only mapping is registered with the required flag, only once at a time, and
// that kernels get its address.
func TestRegisterReadOnly(t *testing.T) {
	for name, defines := range map[string][]string{"unified": nil, "not unified": {"-DUNIFIED=0"}} {
		c := openStandin(t, defines...)
		b, err := c.AllocHost(4*pageSize, Mapped|Shared)
		if err != nil {
			t.Fatal(err)
		}
		file, _ := b.File()
		m := mapToRead(t, file.Fd())
		var e *Error
		if err := c.Device.withContext(func(d *driver) error {
			return d.call(cuMemHostRegister, addressOf(m), uintptr(len(m)), registerMapped)
		}); !errors.As(err, &e) {
			t.Errorf("%s: the stand-in registers it without the flag: %v", name, err)
		}
		for range 2 {
			pointer, unregister, err := c.Device.RegisterReadOnly(m)
			if err != nil {
				t.Fatal(err)
			}
			want := addressOf(m)
			if name == "not unified" {
				want += 1 << 40
			}
			if pointer != want {
				t.Errorf("%s: %#x instead of %#x", name, pointer, want)
			}
			if _, _, err := c.Device.RegisterReadOnly(m); !errors.As(err, &e) || e.Code != 712 {
				t.Errorf("%s: a second time: %v", name, err)
			}
			if err := unregister(); err != nil {
				t.Error(err)
			}
			if err := unregister(); !errors.As(err, &e) || e.Code != 713 {
				t.Errorf("%s: it was registered still: %v", name, err)
			}
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestRegisterReadOnlyFails checks that the error for memory that cannot be registered says what to do, and that
// nothing is left behind.
func TestRegisterReadOnlyFails(t *testing.T) {
	c := openStandin(t)
	b, err := c.AllocHost(4*pageSize, Shared)
	if err != nil {
		t.Fatal(err)
	}
	file, _ := b.File()
	m := mapToRead(t, file.Fd())
	for _, part := range [][]byte{nil, m[:0], m[1:]} {
		if _, _, err := c.Device.RegisterReadOnly(part); !errors.Is(err, ErrSize) || !strings.Contains(err.Error(), "returned by mmap") {
			t.Errorf("%d bytes: %v", len(part), err)
		}
	}
	old := openStandin(t, "-DREADONLY=0")
	if _, _, err := old.Device.RegisterReadOnly(m); !errors.Is(err, ErrReadOnly) || !strings.Contains(err.Error(), "copy the bytes to the device") {
		t.Errorf("a GPU that cannot do it: %v", err)
	}
	t.Setenv("STANDIN_NO_POINTER", "1")
	var e *Error
	for range 2 { // the first attempt has left nothing behind
		if _, _, err := c.Device.RegisterReadOnly(m); !errors.As(err, &e) || e.Call != "cuMemHostGetDevicePointer_v2" {
			t.Errorf("no device pointer: %v", err)
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
