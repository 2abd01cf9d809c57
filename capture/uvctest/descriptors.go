// SPDX-License-Identifier: Apache-2.0

package uvctest

import "slices"

// Sections refer to the USB Video Class 1.1, tables 9-x to the USB specification 2.0.

var le = leOrder{}

// leOrder appends little-endian numbers, as descriptors have them.
type leOrder struct{}

func (leOrder) two(v int) []byte  { return []byte{byte(v), byte(v >> 8)} }
func (leOrder) four(v int) []byte { return []byte{byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24)} }

// descriptor returns a descriptor of a type, with its length before it.
func descriptor(kind byte, parts ...[]byte) []byte {
	body := slices.Concat(parts...)
	return append([]byte{byte(2 + len(body)), kind}, body...)
}

// Types of descriptors (table 9-5, §A.4).
const (
	deviceType      = 1
	configType      = 2
	stringType      = 3
	interfaceType   = 4
	endpointType    = 5
	associationType = 11
	classType       = 0x24 // CS_INTERFACE
)

// Numbers of the strings, the interfaces, the endpoint, and the units of the video function.
const (
	makerString, productString, serialString = 1, 2, 3

	controlInterface, streamInterface = 0, 1
	videoEndpoint                     = 0x81
	cameraTerminal, processingUnit    = 1, 2
	outputTerminal                    = 3
	maxPacket                         = 512
	maxPayload                        = 32 * maxPacket // as much as uvcvideo transfers at a time
)

// device returns the device descriptor (table 9-8).
func (c *Camera) device() []byte {
	return descriptor(deviceType, le.two(0x200), []byte{0xef, 2, 1, 64}, le.two(0x1d6b), le.two(0x0102), le.two(0x100),
		[]byte{makerString, productString, serialString, 1})
}

func (c *Camera) text(n byte) []byte {
	text := map[byte]string{makerString: "tegracast", productString: "Camera in software", serialString: c.config.Serial}[n]
	if n == 0 {
		return descriptor(stringType, le.two(0x409))
	}
	var wide []byte
	for _, r := range text {
		wide = append(wide, le.two(int(r))...)
	}
	return descriptor(stringType, wide)
}

// configuration returns the configuration descriptor with all that belongs to it (§3).
func (c *Camera) configuration() []byte {
	units := slices.Concat(
		// §3.7.2.3, with D1 for the mode of exposure and D3 for exposure
		descriptor(classType, []byte{2, cameraTerminal}, le.two(0x201), []byte{0, 0}, make([]byte, 6), []byte{3, 0x0a, 0, 0}),
		descriptor(classType, []byte{5, processingUnit, cameraTerminal, 0, 0, 2, 1, 2, 0, 0}),         // §3.7.2.5: D0 brightness, D9 gain
		descriptor(classType, []byte{3, outputTerminal}, le.two(0x101), []byte{0, processingUnit, 0}), // §3.7.2.2
	)
	header := descriptor(classType, []byte{1}, le.two(0x110), le.two(13+len(units)), le.four(48_000_000), []byte{1, streamInterface})
	formats := slices.Concat(
		descriptor(classType, []byte{4, formatYUYV, 1}, []byte("YUY2\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71"), []byte{16, 1, 0, 0, 0, 0}),
		c.frame(5), colours,
		descriptor(classType, []byte{6, formatMJPEG, 1, 1, 1, 0, 0, 0, 0}),
		c.frame(7), colours,
	)
	streams := descriptor(classType, []byte{1, 2}, le.two(15+len(formats)), []byte{videoEndpoint, 0, outputTerminal, 0, 0, 0, 1, 0, 0})
	all := slices.Concat(
		descriptor(associationType, []byte{controlInterface, 2, 0x0e, 3, 0, productString}),
		descriptor(interfaceType, []byte{controlInterface, 0, 0, 0x0e, 1, 0, 0}), header, units,
		descriptor(interfaceType, []byte{streamInterface, 0, 1, 0x0e, 2, 0, 0}), streams, formats,
		descriptor(endpointType, []byte{videoEndpoint, 2}, le.two(maxPacket), []byte{0}),
	)
	return slices.Concat(descriptor(configType, le.two(9+len(all)), []byte{2, 1, 0, 0x80, 50}), all)
}

// colours is the colour matching descriptor of BT.709 with the matrix of BT.601 (§3.9.2.6).
var colours = descriptor(classType, []byte{0x0d, 1, 1, 4})

// frame returns the descriptor of the only size of a format (payload specifications, table 3-2).
func (c *Camera) frame(kind byte) []byte {
	bits := 16 * c.config.Width * c.config.Height * c.config.Rate
	return descriptor(classType, []byte{kind, 1, 0}, le.two(c.config.Width), le.two(c.config.Height), le.four(bits), le.four(bits),
		le.four(c.size()), le.four(c.interval()), []byte{1}, le.four(c.interval()))
}

// size returns the maximum size of a picture in bytes.
func (c *Camera) size() int { return 2 * c.config.Width * c.config.Height }

// interval returns the frame period in units of 100 ns.
func (c *Camera) interval() int { return 10_000_000 / c.config.Rate }
