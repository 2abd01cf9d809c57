// SPDX-License-Identifier: Apache-2.0

package uvctest

import (
	"encoding/binary"
	"io"
	"slices"
)

// The protocol between the virtual controller and the device (Documentation/usb/usbip_protocol.rst).
const (
	submit, unlink                 = 1, 2
	submitReply, unlinkReply       = 3, 4
	headerSize                     = 48
	stall                    int32 = -32  // EPIPE
	reset                    int32 = -104 // ECONNRESET
)

var be = binary.BigEndian

// A request is a transfer that the host wants.
type request struct {
	number   uint32
	in       bool
	endpoint uint32
	length   int // bytes that the host sends or has room for
	setup    [8]byte
	data     []byte // from the host
}

// answer answers the host's requests until the camera is unplugged.
func (c *Camera) answer() {
	for {
		var h [headerSize]byte
		if _, err := io.ReadFull(c.bus, h[:]); err != nil {
			return
		}
		r := &request{number: be.Uint32(h[4:]), in: be.Uint32(h[12:]) != 0, endpoint: be.Uint32(h[16:])}
		var err error
		if be.Uint32(h[:]) == unlink {
			err = c.cancel(r.number, be.Uint32(h[20:]))
		} else if err = c.receive(r, h[:]); err == nil {
			err = c.handle(r)
		}
		if err != nil {
			return
		}
	}
}

// receive completes a request with its length, its setup packet and its data.
func (c *Camera) receive(r *request, h []byte) error {
	r.length = int(int32(be.Uint32(h[24:])))
	copy(r.setup[:], h[40:])
	if r.in || r.length <= 0 {
		return nil
	}
	r.data = make([]byte, min(r.length, 1<<16))
	_, err := io.ReadFull(c.bus, r.data)
	return err
}

// handle answers a request of the control endpoint, and keeps one for pictures.
func (c *Camera) handle(r *request) error {
	if r.endpoint == 0 {
		data, ok := c.control(r)
		if !ok {
			return c.reply(r, stall, nil)
		}
		if r.in {
			data = data[:min(len(data), r.length)]
		}
		return c.reply(r, 0, data)
	}
	c.mu.Lock()
	c.waiting = append(c.waiting, r)
	c.mu.Unlock()
	c.wake()
	return nil
}

func (c *Camera) wake() {
	select {
	case c.ready <- struct{}{}:
	default:
	}
}

// cancel takes back a request that the host no longer wants.
func (c *Camera) cancel(number, of uint32) error {
	c.mu.Lock()
	before := len(c.waiting)
	c.waiting = slices.DeleteFunc(c.waiting, func(r *request) bool { return r.number == of })
	status := int32(0) // it is answered already
	if len(c.waiting) < before {
		status = reset
	}
	c.mu.Unlock()
	var h [headerSize]byte
	be.PutUint32(h[:], unlinkReply)
	be.PutUint32(h[4:], number)
	be.PutUint32(h[20:], uint32(status))
	return c.write(h[:])
}

// reply answers a request. The host reads data; all that it sends is accepted.
func (c *Camera) reply(r *request, status int32, data []byte) error {
	var h [headerSize]byte
	be.PutUint32(h[:], submitReply)
	be.PutUint32(h[4:], r.number)
	be.PutUint32(h[20:], uint32(status))
	length := len(data)
	if !r.in {
		data, length = nil, len(r.data)
	}
	be.PutUint32(h[24:], uint32(length))
	return c.write(append(h[:], data...))
}

func (c *Camera) write(b []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err := c.bus.Write(b)
	return err
}
