// SPDX-License-Identifier: Apache-2.0

package uvctest

import "encoding/binary"

// Requests (table 9-4, §A.8).
const (
	getStatus     = 0
	clearFeature  = 1
	getDescriptor = 6
	getConfig     = 8
	setConfig     = 9
	setInterface  = 11

	setCurrent = 0x01
	getCurrent = 0x81
	getMinimum = 0x82
	getMaximum = 0x83
	getStep    = 0x84
	getLength  = 0x85
	getInfo    = 0x86
	getDefault = 0x87
)

// A control is a control of a unit: its number, as in §A.9.
type control struct{ unit, selector byte }

// Exposure, Gain and Brightness are the controls that a camera has besides the mode of exposure.
var (
	mode       = control{cameraTerminal, 0x02}
	Exposure   = control{cameraTerminal, 0x04} // in units of 100 µs
	Gain       = control{processingUnit, 0x04}
	Brightness = control{processingUnit, 0x02}
)

// ranges are the lengths, limits and steps of the controls. The mode is a set of bits: 1 is manual, 2 automatic.
var ranges = map[control]struct{ bytes, least, most, step, usual int32 }{
	mode:       {1, 1, 2, 3, 2},
	Exposure:   {4, 1, 10000, 1, 100},
	Gain:       {2, 0, 255, 1, 16},
	Brightness: {2, -64, 64, 1, 0},
}

func initial() map[control]int32 {
	values := map[control]int32{}
	for c, r := range ranges {
		values[c] = r.usual
	}
	return values
}

// Value returns the value of a control that the host has set.
func (c *Camera) Value(of control) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int(c.controls[of])
}

// control handles a request of the control endpoint, and returns what the host reads. ok is false if the camera does not
// know it.
func (c *Camera) control(r *request) (data []byte, ok bool) {
	kind, call, value := r.setup[0], r.setup[1], binary.LittleEndian.Uint16(r.setup[2:])
	index := binary.LittleEndian.Uint16(r.setup[4:])
	switch {
	case kind&0x60 == 0x20 && index == streamInterface:
		return c.negotiate(r, call, byte(value>>8))
	case kind&0x60 == 0x20:
		return c.unitControl(r, call, control{byte(index >> 8), byte(value >> 8)})
	case call == getDescriptor && value>>8 == deviceType:
		return c.device(), true
	case call == getDescriptor && value>>8 == configType:
		return c.configuration(), true
	case call == getDescriptor && value>>8 == stringType && value&0xff <= serialString:
		return c.text(byte(value)), true
	case call == getStatus:
		return []byte{0, 0}, true
	case call == getConfig:
		return []byte{1}, true
	case call == setConfig, call == setInterface, call == clearFeature:
		return nil, true
	}
	return nil, false
}

// unitControl handles a request for a control of a unit (§4.2.2).
func (c *Camera) unitControl(r *request, call byte, of control) ([]byte, bool) {
	limits, known := ranges[of]
	if !known {
		return nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	number := func(v int32) ([]byte, bool) { return le.four(int(v))[:limits.bytes], true }
	switch call {
	case getCurrent:
		return number(c.controls[of])
	case getMinimum:
		return number(limits.least)
	case getMaximum:
		return number(limits.most)
	case getStep:
		return number(limits.step)
	case getDefault:
		return number(limits.usual)
	case getInfo:
		return []byte{3}, true // it can be read and set
	case getLength:
		return le.two(int(limits.bytes)), true
	case setCurrent:
		if len(r.data) < int(limits.bytes) || of == Exposure && c.controls[mode] != 1 {
			return nil, false
		}
		var v [4]byte
		copy(v[:], r.data[:limits.bytes])
		if c.controls[of] = int32(binary.LittleEndian.Uint32(v[:])); limits.bytes == 2 {
			c.controls[of] = int32(int16(c.controls[of]))
		}
		return nil, true
	}
	return nil, false
}

// probeSize is the length of a video probe and commit control of UVC 1.1 (§4.3.1.1).
const probeSize = 34

// limits returns the parameters of a format.
func (c *Camera) limits(format byte) (p [probeSize]byte) {
	p[2], p[3] = format, 1
	copy(p[4:], le.four(c.interval()))
	copy(p[18:], le.four(c.size()))
	copy(p[22:], le.four(maxPayload))
	copy(p[26:], le.four(48_000_000))
	return p
}

// negotiate handles a request for the probe (1) or commit (2) control.
func (c *Camera) negotiate(r *request, call, selector byte) ([]byte, bool) {
	if selector != 1 && selector != 2 {
		return nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch call {
	case setCurrent:
		if len(r.data) < 4 {
			return nil, false
		}
		format := byte(formatYUYV)
		if r.data[2] == formatMJPEG {
			format = formatMJPEG
		}
		if c.probe = c.limits(format); selector == 2 {
			c.format = format
		}
		return nil, true
	case getCurrent, getMinimum, getMaximum, getDefault:
		return c.probe[:], true
	case getLength:
		return le.two(probeSize), true
	case getInfo:
		return []byte{3}, true
	}
	return nil, false
}
