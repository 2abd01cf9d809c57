// SPDX-License-Identifier: Apache-2.0

package tegratest

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra"
	"github.com/tegracast/tegracast/tegra/uapi"
)

// TestDevice needs a function that the kernel module drives. A test of cmd/tegracast runs it in the virtual Jetson.
func TestDevice(t *testing.T) {
	path := *devicePath
	if path == "" {
		t.Skip("NEEDS a device of the kernel module tegra_p2p: go test ./tegra/tegratest -args -device /dev/tegra_p2p0")
	}
	d, err := tegra.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	nvp2p := d.Info().Flags&uapi.InfoNVP2P != 0
	t.Logf("%+v", d.Info())
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	Run(t, Config{FirstPage: nvp2p, Unplug: unbind, Open: func(t *testing.T) Function {
		d, err := tegra.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}})
	t.Run("calls", func(t *testing.T) {
		RunCalls(t, func(t *testing.T, readOnly bool) Calls {
			mode := unix.O_RDWR
			if readOnly {
				mode = unix.O_RDONLY
			}
			fd, err := unix.Open(path, mode|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			return openFile(fd)
		})
	})
}

// openFile is the descriptor of an open device file.
type openFile int

func (f openFile) Info() (uapi.Info, error) { return uapi.GetInfo(int(f)) }

func (f openFile) Pin(p *uapi.Pin, segments []uapi.Segment) error {
	return uapi.DoPin(int(f), p, segments)
}

func (f openFile) Query(q *uapi.Query, segments []uapi.Segment) error {
	return uapi.DoQuery(int(f), q, segments)
}

func (f openFile) Put(handle uint32) error { return uapi.DoPut(int(f), handle) }

func (f openFile) Alloc(a *uapi.Alloc) error { return uapi.DoAlloc(int(f), a) }

func (f openFile) SetHalt(ops []uapi.HaltOp) error { return uapi.SetHalt(int(f), ops) }
func (f openFile) Close() error                    { return unix.Close(int(f)) }

func (f openFile) SetEvent(kind, index uint32, eventfd int) error {
	return uapi.SetEvent(int(f), kind, index, eventfd)
}

func (f openFile) Control(op uint32, generation uint64) (uint64, error) {
	return uapi.DoControl(int(f), op, generation)
}

func (f openFile) Mmap(offset uint64, size int) ([]byte, error) {
	return unix.Mmap(int(f), int64(offset), size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// unbind unbinds the function from the module, and binds it again at the end of the test. Meanwhile, programs see it as
// gone.
func unbind(t *testing.T, _ Function) {
	t.Helper()
	devices, _ := filepath.Glob("/sys/class/*/" + filepath.Base(*devicePath) + "/device")
	if len(devices) != 1 {
		t.Fatalf("the function of %s is one of %v", *devicePath, devices)
	}
	function, err := filepath.EvalSymlinks(devices[0])
	if err != nil {
		t.Fatal(err)
	}
	driver, err := filepath.EvalSymlinks(filepath.Join(function, "driver"))
	if err != nil {
		t.Fatal(err)
	}
	address := []byte(filepath.Base(function))
	if err := os.WriteFile(filepath.Join(driver, "unbind"), address, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(filepath.Join(driver, "bind"), address, 0); err != nil {
			t.Fatal(err)
		}
		for began := time.Now(); time.Since(began) < patience; time.Sleep(10 * time.Millisecond) {
			if _, err := os.Stat(*devicePath); err == nil {
				return
			}
		}
		t.Fatalf("%s does not come back", *devicePath)
	})
}

var devicePath = flag.String("device", "", "device file of the kernel module")
