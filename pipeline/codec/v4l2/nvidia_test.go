// SPDX-License-Identifier: Apache-2.0

package v4l2

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
	"github.com/tegracast/tegracast/pipeline/videodev"
)

// nvidiaDouble compiles the stand-in for NVIDIA's libraries and returns its path. options are passed to gcc.
func nvidiaDouble(t *testing.T, options ...string) string {
	t.Helper()
	lib := filepath.Join(t.TempDir(), "libnvenc.so")
	args := append([]string{"-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", lib, "testdata/nvenc.c"}, options...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return lib
}

// complaint returns what the stand-in has refused first since it was opened.
func complaint(t *testing.T, lib string) string {
	t.Helper()
	handle, err := purego.Dlopen(lib, purego.RTLD_NOW)
	if err != nil {
		t.Fatal(err)
	}
	at, err := purego.Dlsym(handle, "complaint")
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ := purego.SyscallN(at)
	return unix.BytePtrToString(*(**byte)(unsafe.Pointer(&text)))
}

// TestNVIDIA encodes through the stand-in for NVIDIA's libraries, which are in a folder that the linker does not search.
// The stand-in sees a picture only after its planes were synchronised, and refuses calls that NVIDIA's documentation
// forbids.
func TestNVIDIA(t *testing.T) {
	lib, usual := nvidiaDouble(t), nvidiaFolders
	nvidiaFolders = []string{t.TempDir()}
	t.Cleanup(func() { nvidiaFolders = usual })
	for _, name := range []string{nvidiaLibrary, surfaceLibrary} {
		if err := os.Symlink(lib, filepath.Join(nvidiaFolders[0], name)); err != nil {
			t.Fatal(err)
		}
	}
	f := rtptest.Format(t, pipeline.I420, 200, 90, 30)
	for _, path := range []string{"/dev/v4l2-nvenc", "/dev/nvhost-msenc"} { // opened again, as after a failure
		e, err := New(path, f, 2_000_000)
		if err != nil {
			t.Fatalf("%v: %s", err, complaint(t, lib))
		}
		if sps, pps := e.ParameterSets(); !bytes.Equal(sps, []byte{0x67, 66, 192, 30}) || !bytes.Equal(pps, []byte{0x68, 1, 2, profileBaseline + 2}) {
			t.Errorf("parameter sets % x, % x: want the baseline profile", sps, pps)
		}
		for n := range 5 {
			frame := rtptest.Frame(f, n)
			key := n%2 == 0
			unit, err := e.Encode(make([]byte, 0, f.Size()), frame, key)
			if err != nil || !ends(unit, frame.Bytes) || hasSets(unit) != key || bytes.Contains(unit, []byte{0, 0, 1, 0x65}) != key {
				t.Fatalf("frame %d, key frame %v: % x, %v: %s", n, key, unit, err, complaint(t, lib))
			}
		}
		if err := errors.Join(e.SetBitrate(1_000_000), e.Close()); err != nil {
			t.Error(err)
		}
		if why := complaint(t, lib); why != "" {
			t.Errorf("refused: %s", why)
		}
	}
}

// A negligent is a device whose planes are synchronised only in part, or too late.
type negligent struct {
	*through
	planes []int // those that are synchronised
	late   bool  // after the picture was queued
	mapped [][]byte
}

func (n *negligent) sync(plane int, b []byte) error {
	switch {
	case !slices.Contains(n.planes, plane):
		return nil
	case n.late:
		n.mapped = append(n.mapped, b)
		return nil
	}
	return n.through.sync(plane, b)
}

func (n *negligent) Ioctl(request uintptr, at unsafe.Pointer) error {
	err := n.through.Ioctl(request, at)
	for plane, b := range n.mapped {
		if request == videodev.Enqueue {
			err = errors.Join(err, n.through.sync(plane, b))
		}
	}
	if request == videodev.Enqueue {
		n.mapped = nil
	}
	return err
}

// TestNegligentSync checks that the stand-in encodes another picture if a plane is not synchronised, or too late.
func TestNegligentSync(t *testing.T) {
	lib := nvidiaDouble(t)
	f := rtptest.Format(t, pipeline.I420, 200, 90, 30)
	for name, n := range map[string]*negligent{
		"none": {}, "luma alone": {planes: []int{0}}, "one plane of chroma": {planes: []int{0, 1}}, "late": {planes: []int{0, 1, 2}, late: true},
	} {
		e, err := opened(func() (node, error) {
			t, err := openThrough(lib, lib, "/dev/v4l2-nvenc")
			n.through = t
			return n, err
		}, "/dev/v4l2-nvenc", f, 2_000_000)
		if err != nil {
			t.Fatalf("%s: %v: %s", name, err, complaint(t, lib))
		}
		frame := rtptest.Frame(f, 1)
		if unit, err := e.Encode(make([]byte, 0, f.Size()), frame, false); err != nil || ends(unit, frame.Bytes) {
			t.Errorf("%s: the device has seen the picture: % x, %v", name, unit, err)
		}
		if err := e.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// hasNVIDIA reports whether this machine has NVIDIA's library, as a Jetson has.
func hasNVIDIA() bool {
	return slices.ContainsFunc(nvidiaFolders, func(folder string) bool {
		_, err := os.Stat(filepath.Join(folder, nvidiaLibrary))
		return err == nil
	})
}

// TestNotServed checks what is said about a device file of NVIDIA's for which its library has no encoder, as on Thor,
// and where a library is missing.
func TestNotServed(t *testing.T) {
	lib, older := nvidiaDouble(t), nvidiaDouble(t, "-DNvBufSurfaceFromFd=NvBufferGetParams") // JetPack 4 has other names
	if _, err := Try(); !hasNVIDIA() && (err == nil || !strings.Contains(err.Error(), "cannot be opened")) {
		t.Errorf("this machine: %v", err)
	}
	f := rtptest.Format(t, pipeline.I420, 200, 90, 30)
	stub := filepath.Join(t.TempDir(), "v4l2-nvenc")
	if err := os.Symlink("/dev/null", stub); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ library, surfaces, want string }{
		{lib, lib, "v4l2-nvenc: libnvv4l2.so does not provide an encoder here (on Thor it is reachable only through CUDA): remove encoder"},
		{"libnvnone.so", lib, "libnvnone.so cannot be opened"},
		{lib, "libnvnone.so", "would encode old pictures, because what the CPU writes cannot be made visible to it: libnvnone.so cannot be opened"},
		{lib, older, "NvBufSurfaceFromFd: apt-get install nvidia-l4t-multimedia-utils of JetPack 5 or later"},
	} {
		_, err := opened(func() (node, error) { return openThrough(tt.library, tt.surfaces, stub) }, stub, f, 2_000_000)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v\nwant %q", err, tt.want)
		}
	}
}
