// SPDX-License-Identifier: Apache-2.0

package videodev

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestGraph checks the way from a sensor to a video device, and the commands that repair it.
func TestGraph(t *testing.T) {
	video := Number{81, 0}
	g := &Graph{
		Entities: []Entity{
			{Name: "vi-output", Node: video},
			{Name: "nvcsi", Subdevice: true},
			{Name: "imx219 9-0010", Sensor: true, Subdevice: true, Node: Number{81, 3}},
			{Name: "imx477 10-001a", Sensor: true, Subdevice: true},
		},
		Links: []Link{{From: 1, FromPad: 1, To: 0, Enabled: true, Immutable: true}, {From: 3, To: 1}, {From: 2, To: 1, Enabled: true}},
	}
	path, sensor, err := g.Path(video)
	if err != nil || sensor != 2 || !slices.Equal(path, []Link{g.Links[2], g.Links[0]}) {
		t.Errorf("the enabled way: %v, %d, %v", path, sensor, err)
	}
	g.Links[2].Enabled = false
	path, sensor, err = g.Path(video)
	if err != nil || sensor != 3 || len(path) != 2 {
		t.Errorf("without an enabled one: %v, %d, %v", path, sensor, err)
	}
	raw10 := BusCode(Code("RG10"))
	pads := map[[2]int]PadFormat{{3, 0}: {raw10, 1920, 1080}, {1, 0}: {raw10, 640, 480}, {1, 1}: {raw10, 1920, 1080}}
	lines := g.Repair("/dev/media1", path, PadFormat{raw10, 1920, 1080}, func(e, p int) (PadFormat, bool) {
		f, has := pads[[2]int{e, p}]
		return f, has
	})
	want := []string{
		`media-ctl -d /dev/media1 -l '"imx477 10-001a":0->"nvcsi":0[1]'`,
		`media-ctl -d /dev/media1 -V '"nvcsi":0[fmt:SRGGB10_1X10/1920x1080]'`,
	}
	if !slices.Equal(lines, want) {
		t.Errorf("%q", lines)
	}
	if _, _, err := g.Path(Number{81, 9}); !errors.Is(err, ErrGraph) {
		t.Errorf("another device: %v", err)
	}
	g.Links[0].From = 0 // a circle without a sensor
	if _, _, err := g.Path(video); !errors.Is(err, ErrGraph) {
		t.Errorf("no sensor: %v", err)
	}
}

// TestSettings checks names, values and menus of controls.
func TestSettings(t *testing.T) {
	for name, want := range map[string]string{"Exposure Time, Absolute": "exposure_time_absolute", "White Balance (R)": "white_balance_r", "--": ""} {
		if got := Key(name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
	gain := &Setting{Name: "Gain", Type: typeInteger, Min: 16, Max: 255, Step: 3}
	menu := &Setting{Name: "Test Pattern", Type: typeMenu, Max: 2, Items: []MenuItem{{0, "Disabled"}, {2, "100% Colorbar"}}}
	flag := &Setting{Name: "Flip", Type: typeBoolean, Max: 1}
	for _, c := range []struct {
		setting *Setting
		text    string
		want    int64
		fails   bool
	}{
		{gain, "16", 16, false},
		{gain, "0x10", 16, false},
		{gain, "256", 0, true},
		{gain, "bright", 0, true},
		{menu, "100% colorbar", 2, false},
		{menu, "100_colorbar", 2, false},
		{menu, "2", 2, false},
		{menu, "bars", 0, true},
		{flag, "true", 1, false},
		{flag, "2", 0, true},
		{&Setting{Type: typeString}, "1", 0, true},
		{&Setting{Type: typeInteger, Max: 9, Flags: flagReadOnly}, "1", 0, true},
	} {
		if v, err := c.setting.Parse(c.text); v != c.want || errors.Is(err, ErrControl) != c.fails {
			t.Errorf("%s %q: %d, %v", c.setting.Name, c.text, v, err)
		}
	}
	for v, want := range map[float64]int64{0: 16, 17.4: 16, 17.6: 19, 1000: 255} {
		if got := gain.Nearest(v); got != want {
			t.Errorf("nearest to %v: %d, want %d", v, got, want)
		}
	}
}

// TestHost finds devices in a copy of /dev, /sys and /proc, whose device file is /dev/null's.
func TestHost(t *testing.T) {
	root := t.TempDir()
	h := Host{root}
	write := func(name, text string) {
		t.Helper()
		at := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, name string) {
		t.Helper()
		at := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.Symlink(to, at)); err != nil {
			t.Fatal(err)
		}
	}
	usb := "sys/devices/usb1/1-2"
	write(usb+"/idVendor", "046d\n")
	write(usb+"/idProduct", "085c\n")
	write(usb+"/serial", "7F\n")
	write(usb+"/1-2:1.0/media3/dev", "1:4\n")
	node := usb + "/1-2:1.0/video4linux/video2"
	write(node+"/name", "Stream Camera\n")
	write(node+"/index", "0\n")
	write(node+"/uevent", "MAJOR=1\nMINOR=3\nDEVNAME=video2\n")
	link(filepath.Join(root, usb, "1-2:1.0"), node+"/device")
	link(filepath.Join(root, node), "sys/dev/char/1:3")
	link(filepath.Join(root, node), "sys/class/video4linux/video2")
	link("/dev/null", "dev/video2")
	link(filepath.Join(root, "dev/video2"), "proc/77/fd/9")
	for _, fd := range []string{"4", "9"} {
		link(filepath.Join(root, "dev/video2"), fmt.Sprintf("proc/%d/fd/%s", os.Getpid(), fd))
	}
	link("/dev/zero", "proc/78/fd/9")
	write("proc/77/comm", "motion\n")

	n, err := h.Number("/dev/video2")
	if err != nil || n != (Number{1, 3}) {
		t.Fatalf("%v, %v", n, err)
	}
	id, err := h.Identify(n)
	if err != nil || id != (Identity{Device: "devices/usb1/1-2/1-2:1.0", USB: "046d:085c:7F", Name: "Stream Camera", Index: "0"}) {
		t.Errorf("%+v, %v", id, err)
	}
	moved := id
	if moved.Device = "elsewhere"; !moved.Same(id) {
		t.Error("a camera with a serial number that was plugged in elsewhere is another one")
	}
	if moved.USB = ""; moved.Same(id) {
		t.Error("a camera without a serial number elsewhere is the same")
	}
	if path, err := h.Find(id); err != nil || path != "/dev/video2" {
		t.Errorf("found %q, %v", path, err)
	}
	if _, err := h.Find(moved); !errors.Is(err, ErrNoDevice) {
		t.Errorf("found another: %v", err)
	}
	if path, err := h.Media(n); err != nil || path != "/dev/media3" {
		t.Errorf("media device %q, %v", path, err)
	}
	if path, err := h.File(n); err != nil || path != "/dev/video2" {
		t.Errorf("file %q, %v", path, err)
	}
	list, all := h.Holders(n)
	slices.SortFunc(list, func(a, b Holder) int { return a.Times - b.Times })
	if len(list) != 2 || list[0].String() != "motion (process 77)" || list[1].Process != os.Getpid() || list[1].Times != 2 || !all {
		t.Errorf("held by %v, all %t", list, all)
	}
	if list := h.Cameras(); len(list) != 1 || list[0].Err == nil || len(list[0].Holders) != 2 { // /dev/null
		t.Errorf("cameras %+v", list)
	}
}

// TestWake checks that a Wake ends a wait and stays set until it is cleared, and that events, also those of a file with the
// number of an earlier one, end a wait.
func TestWake(t *testing.T) {
	w, err := NewWake()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var past int
	for range 3 {
		fd, err := unix.Eventfd(1, unix.EFD_NONBLOCK)
		if err != nil {
			t.Fatal(err)
		}
		if past != 0 && fd != past {
			t.Logf("the number %d is not used again: %d", past, fd)
		}
		f := File(fd)
		past = fd
		if r, err := f.Wait(ForInput|ForEvent, w, time.Hour); err != nil || !r.Buffer || r.Event || r.Broken {
			t.Fatalf("a full file: %+v, %v", r, err)
		}
		for range 100 { // before, in and after waits
			go w.Set()
			if r, err := f.Wait(ForEvent, w, time.Hour); err != nil || r.Event {
				t.Fatalf("%+v, %v", r, err)
			}
			w.Clear()
		}
		began := time.Now()
		for time.Since(began) < 5*time.Millisecond {
			if r, err := f.Wait(ForEvent, w, time.Millisecond); err != nil || r != (Ready{}) {
				t.Errorf("%+v, %v", r, err)
			}
		}
		w.Set()
		if r, err := f.Wait(ForOutput, w, time.Hour); err != nil || !r.Buffer {
			t.Errorf("set, and room in the file: %+v, %v", r, err)
		}
		w.Clear()
		w.Forget()
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := File(past).Wait(ForInput, w, time.Second); !errors.Is(err, unix.EBADF) {
		t.Errorf("a file that is not open: %v", err)
	}
}
