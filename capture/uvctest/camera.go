// SPDX-License-Identifier: Apache-2.0

package uvctest

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Config configures a camera. It offers pictures of one size and rate, as YUYV and as Motion JPEG.
type Config struct {
	Width, Height int    // pixels
	Rate          int    // frames a second
	Serial        string // serial number; "": "0001"
	// Picture returns picture n, counted from 0 since the camera was plugged in: 2*Width*Height bytes, or a JPEG file of
	// at most as many bytes.
	Picture func(n uint64, jpeg bool) []byte
	// Faulty, if not nil, returns what is wrong with picture n.
	Faulty func(n uint64) Fault
}

// A Fault is a fault of one picture.
type Fault int

// The faults.
const (
	None    Fault = iota
	Error         // the picture has the error bit of the payload header (UVC 1.1 §2.4.3.3)
	Short         // its second half is missing
	Skipped       // it is not sent
)

// A Camera is plugged in until Unplug.
type Camera struct {
	config Config
	bus    net.Conn

	mu       sync.Mutex
	waiting  []*request    // bulk requests of the host, oldest first
	ready    chan struct{} // signals that there is another one, or that there are none any more
	format   byte          // bFormatIndex that the host has committed
	probe    [probeSize]byte
	controls map[control]int32
	writing  sync.Mutex
	ended    sync.WaitGroup
	over     chan struct{}
}

const (
	highSpeed   = 3         // enum usb_device_speed
	deviceID    = 1<<16 | 2 // bus and number of the device at the far end, which the kernel only shows
	attachFile  = "/sys/devices/platform/vhci_hcd.0/attach"
	formatYUYV  = 1
	formatMJPEG = 2
)

// Plug plugs a camera into port 0 of the virtual controller.
func Plug(c Config) (*Camera, error) {
	c.Serial = cmp.Or(c.Serial, "0001")
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(ends[0]), "camera"), os.NewFile(uintptr(ends[1]), "controller")
	defer theirs.Close() // the kernel holds it
	defer ours.Close()
	bus, err := net.FileConn(ours)
	if err != nil {
		return nil, err
	}
	camera := &Camera{config: c, bus: bus, ready: make(chan struct{}, 1), format: formatYUYV, controls: initial(), over: make(chan struct{})}
	camera.probe = camera.limits(formatYUYV)
	camera.ended.Go(camera.answer)
	camera.ended.Go(camera.stream)
	line := fmt.Sprintf("0 %d %d %d\n", theirs.Fd(), deviceID, highSpeed)
	if err := os.WriteFile(attachFile, []byte(line), 0); err != nil {
		return nil, errors.Join(fmt.Errorf("uvctest: port 0 of vhci-hcd: %w", err), camera.Unplug())
	}
	return camera, nil
}

// Unplug pulls the camera out.
func (c *Camera) Unplug() error {
	select {
	case <-c.over:
		return nil
	default:
	}
	close(c.over)
	err := c.bus.Close()
	c.ended.Wait()
	return err
}

// stream sends pictures while the host asks for them.
func (c *Camera) stream() {
	period := time.Second / time.Duration(c.config.Rate)
	next := time.Now()
	for n := uint64(0); ; n++ {
		select {
		case <-c.over:
			return
		case <-time.After(time.Until(next)):
		}
		if next = next.Add(period); time.Until(next) < -period { // nobody has asked for a while
			next = time.Now()
		}
		fault := None
		if c.config.Faulty != nil {
			fault = c.config.Faulty(n)
		}
		c.mu.Lock()
		idle, jpeg := len(c.waiting) == 0, c.format == formatMJPEG
		c.mu.Unlock()
		if fault == Skipped || idle {
			continue
		}
		if !c.sendPicture(n, c.config.Picture(n, jpeg), fault) {
			return
		}
	}
}

// Bits of a payload header (UVC 1.1 §2.4.3.3).
const (
	payloadHeader = 2
	endOfHeader   = 1 << 7
	errorBit      = 1 << 6
	endOfFrame    = 1 << 1
)

// sendPicture sends a picture in payloads, one for each request, and reports whether the camera is still plugged in.
func (c *Camera) sendPicture(n uint64, picture []byte, fault Fault) bool {
	if fault == Short {
		picture = picture[:len(picture)/2]
	}
	for last := false; !last; {
		size := min(len(picture), maxPayload-payloadHeader)
		flags := byte(endOfHeader) | byte(n&1)
		if last = size == len(picture); last {
			flags |= endOfFrame
		}
		if fault == Error {
			flags |= errorBit
		}
		r := c.nextRequest()
		if r == nil {
			return false
		}
		if err := c.reply(r, 0, append([]byte{payloadHeader, flags}, picture[:size]...)); err != nil {
			return false
		}
		picture = picture[size:]
	}
	return true
}

// nextRequest waits for a bulk request, and returns nil if the camera has been unplugged.
func (c *Camera) nextRequest() *request {
	for {
		c.mu.Lock()
		if len(c.waiting) > 0 {
			r := c.waiting[0]
			c.waiting = c.waiting[1:]
			c.mu.Unlock()
			return r
		}
		c.mu.Unlock()
		select {
		case <-c.ready:
		case <-c.over:
			return nil
		}
	}
}
