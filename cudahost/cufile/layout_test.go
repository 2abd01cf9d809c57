// SPDX-License-Identifier: Apache-2.0

package cufile

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/tegracast/tegracast/cudahost/headertest"
)

// TestLayout compares the structs passed to libcufile with the released header.
func TestLayout(t *testing.T) {
	header := os.Getenv("TEGRACAST_CUFILE_H")
	for _, path := range []string{"/usr/include/cufile.h", "/usr/local/cuda/include/cufile.h"} {
		if _, err := os.Stat(path); err == nil {
			header = cmp.Or(header, path)
		}
	}
	if header == "" {
		t.Skip("NEEDS cufile.h (Debian's libcufile-dev), or its path in TEGRACAST_CUFILE_H")
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "cuda.h"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got := headertest.Output(t, "testdata/layout.c", "-I", folder, fmt.Sprintf("-DHEADER=%q", header))
	var d descr
	var p drvProps
	var text string
	for _, f := range []struct {
		name string
		n    uintptr
	}{
		{"CUfileError_t", 8},
		{"CUfileDescr_t", unsafe.Sizeof(d)},
		{"CUfileDescr_t.handle", unsafe.Offsetof(d.handle)},
		{"CUfileDescr_t.fs_ops", unsafe.Offsetof(d.ops)},
		{"CUfileDrvProps_t", unsafe.Sizeof(p)},
		{"CUfileDrvProps_t.nvfs.max_direct_io_size", unsafe.Offsetof(p.maxDirectIO)},
		{"CUfileDrvProps_t.nvfs.dcontrolflags", unsafe.Offsetof(p.control)},
		{"CUfileDrvProps_t.fflags", unsafe.Offsetof(p.features)},
	} {
		text += fmt.Sprintf("%s %d\n", f.name, f.n)
	}
	if got != text {
		t.Errorf("cufile.h has\n%s, and the package\n%s", got, text)
	}
}
