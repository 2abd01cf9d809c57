// SPDX-License-Identifier: Apache-2.0

package videodev

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A Host finds device files. Root is the folder under which /dev, /sys and /proc are; empty: "/".
type Host struct{ Root string }

func (h Host) at(path ...string) string {
	return filepath.Join(append([]string{"/", h.Root}, path...)...)
}

// ErrNoDevice means that there is no such device.
var ErrNoDevice = errors.New("no such video device")

// Number returns the number of a device file.
func (h Host) Number(path string) (Number, error) {
	var s unix.Stat_t
	if err := unix.Stat(h.at(path), &s); err != nil {
		return Number{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if s.Mode&unix.S_IFMT != unix.S_IFCHR {
		return Number{}, fmt.Errorf("%s: %w: it is not a device file", path, ErrNoDevice)
	}
	return Number{unix.Major(s.Rdev), unix.Minor(s.Rdev)}, nil
}

// folder returns the folder of a device in /sys.
func (h Host) folder(n Number) string {
	return h.at("sys/dev/char", fmt.Sprintf("%d:%d", n.Major, n.Minor))
}

// word returns the only line of a file of /sys, or "".
func word(path ...string) string {
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil || len(b) > 4096 {
		return ""
	}
	return text([]byte(strings.TrimSpace(string(b))))
}

// File returns the device file of a device: /dev, and the name that its folder in /sys has.
func (h Host) File(n Number) (string, error) {
	b, err := os.ReadFile(filepath.Join(h.folder(n), "uevent"))
	if err != nil {
		return "", fmt.Errorf("%w: %d:%d: %w", ErrNoDevice, n.Major, n.Minor, err)
	}
	for line := range strings.Lines(string(b)) {
		if name, is := strings.CutPrefix(strings.TrimSpace(line), "DEVNAME="); is && name != "" && filepath.IsLocal(name) {
			return "/dev/" + name, nil
		}
	}
	return "", fmt.Errorf("%w: %d:%d has no device file", ErrNoDevice, n.Major, n.Minor)
}

// Media returns the device file of the media device that a video device belongs to.
func (h Host) Media(video Number) (string, error) {
	list, err := os.ReadDir(filepath.Join(h.folder(video), "device"))
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoDevice, err)
	}
	for _, e := range list {
		if n, is := strings.CutPrefix(e.Name(), "media"); is && isNumber(n) {
			return "/dev/" + e.Name(), nil
		}
	}
	return "", fmt.Errorf("%w: the video device %d:%d belongs to no media device", ErrNoDevice, video.Major, video.Minor)
}

func isNumber(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}

// An Identity tells a video device from others, also when it has come back with another number.
type Identity struct {
	Device string // its hardware in /sys: a path of buses and ports
	USB    string // vendor, product and serial number; empty if it is not on USB, or has no serial number
	Name   string
	Index  string // number of the video device among those of its hardware
}

// Identify returns the identity of a device. If another one has its serial number, as all of some models have, it is known
// by its place alone.
func (h Host) Identify(n Number) (Identity, error) {
	id, err := h.identify(n)
	if err != nil || id.USB == "" {
		return id, err
	}
	for _, path := range h.Videos() {
		other, err := h.Number(path)
		if err != nil || other == n {
			continue
		}
		if twin, err := h.identify(other); err == nil && twin.Same(id) && twin.Device != id.Device {
			id.USB = ""
			break
		}
	}
	return id, nil
}

func (h Host) identify(n Number) (Identity, error) {
	folder := h.folder(n)
	device, err := filepath.EvalSymlinks(filepath.Join(folder, "device"))
	if errors.Is(err, fs.ErrNotExist) {
		device, err = filepath.EvalSymlinks(folder) // a virtual one
		device = filepath.Dir(device)
	}
	if err != nil {
		return Identity{}, fmt.Errorf("%w: %w", ErrNoDevice, err)
	}
	id := Identity{Device: strings.TrimPrefix(device, h.at("sys")+"/"), Name: word(folder, "name"), Index: word(folder, "index")}
	for at := device; len(at) > len(h.at("sys")); at = filepath.Dir(at) {
		if vendor, serial := word(at, "idVendor"), word(at, "serial"); vendor != "" {
			if serial != "" {
				id.USB = vendor + ":" + word(at, "idProduct") + ":" + serial
			}
			break
		}
	}
	return id, nil
}

// Same reports whether two identities are those of one device: by its serial number, or by its place.
func (a Identity) Same(b Identity) bool {
	if a.Name != b.Name || a.Index != b.Index {
		return false
	}
	return a.Device == b.Device || a.USB != "" && a.USB == b.USB
}

// Find returns the device file of a device, whatever its number is now: the one at its place, otherwise the one with its
// serial number.
func (h Host) Find(id Identity) (string, error) {
	moved := ""
	for _, path := range h.Videos() {
		n, err := h.Number(path)
		if err != nil {
			continue
		}
		switch now, err := h.identify(n); {
		case err != nil || !now.Same(id):
		case now.Device == id.Device:
			return path, nil
		default:
			moved = path
		}
	}
	if moved != "" {
		return moved, nil
	}
	return "", fmt.Errorf("%w: %s (%s)", ErrNoDevice, id.Name, id.Device)
}

// Videos returns the device files of all video devices, by number.
func (h Host) Videos() []string {
	list, _ := os.ReadDir(h.at("sys/class/video4linux")) // no devices without it
	var paths []string
	for _, e := range list {
		if n, is := strings.CutPrefix(e.Name(), "video"); is && isNumber(n) {
			paths = append(paths, "/dev/"+e.Name())
		}
	}
	slices.SortFunc(paths, func(a, b string) int {
		if d := len(a) - len(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return paths
}

// A Holder is a process that has a device file open.
type Holder struct {
	Process int
	Name    string
	Times   int // so often
}

func (p Holder) String() string { return fmt.Sprintf("%s (process %d)", p.Name, p.Process) }

// Holders returns the processes that have a device file open, this one as others. all is false if there may be more, because
// this user may not see what some processes have open.
func (h Host) Holders(n Number) (list []Holder, all bool) {
	processes, _ := os.ReadDir(h.at("proc"))
	all = true
	for _, p := range processes {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		files, err := os.ReadDir(h.at("proc", p.Name(), "fd")) // the process may have ended
		all = all && !errors.Is(err, fs.ErrPermission)
		holder := Holder{Process: pid}
		for _, f := range files {
			at := h.at("proc", p.Name(), "fd", f.Name())
			if to, err := os.Readlink(at); err != nil || !strings.HasPrefix(to, h.at("dev")+"/") {
				continue // other files may lie on disks that do not answer
			}
			var s unix.Stat_t
			if unix.Stat(at, &s) == nil && s.Mode&unix.S_IFMT == unix.S_IFCHR && (Number{unix.Major(s.Rdev), unix.Minor(s.Rdev)}) == n {
				holder.Times++
			}
		}
		if holder.Times > 0 {
			holder.Name = word(h.at("proc", p.Name(), "comm"))
			list = append(list, holder)
		}
	}
	return list, all
}

// A Camera is a video device that captures.
type Camera struct {
	Path    string
	About   About
	Offers  []string // formats, sizes and rates, for people (Offer)
	Holders []Holder // processes that have it open
	Err     error    // why it cannot be asked
}

// Cameras returns the video devices of the machine that capture, and those that cannot be opened.
func (h Host) Cameras() (list []Camera) {
	for _, path := range h.Videos() {
		answer := make(chan *Camera, 1)
		go func() { answer <- h.camera(path) }() // it may never return
		select {
		case c := <-answer:
			if c != nil {
				list = append(list, *c)
			}
		case <-time.After(askLimit):
			list = append(list, Camera{Path: path, Err: fmt.Errorf("its driver does not answer within %v", askLimit)})
		}
	}
	return list
}

// askLimit limits the time for which Cameras waits for a device.
const askLimit = 5 * time.Second

// camera returns a video device, or nil if it does not capture.
func (h Host) camera(path string) *Camera {
	c := &Camera{Path: path}
	if n, err := h.Number(path); err == nil {
		c.Holders, _ = h.Holders(n)
	}
	f, err := Open(h.at(path))
	if err != nil {
		c.Err = err
		return c
	}
	defer f.Close() // nothing was done with it
	if !c.ask(f) {
		return nil
	}
	return c
}

// ask asks an open device, and reports whether it is a camera or its error is worth telling.
func (c *Camera) ask(d Caller) bool {
	if c.About, c.Err = Ask(d); c.Err != nil {
		return true
	}
	kind := uint32(Capture)
	switch can := c.About.Can; {
	case can&CanStream == 0 || can&(CanCapture|CanCaptureMulti) == 0:
		return false
	case can&CanCaptureMulti != 0:
		kind = CaptureMulti
	}
	for _, code := range Codes(d, kind) {
		c.Offers = append(c.Offers, Offer(d, code))
	}
	return true
}
