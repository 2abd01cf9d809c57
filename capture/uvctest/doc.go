// SPDX-License-Identifier: Apache-2.0

// Package uvctest is a USB camera in software: a device of the USB Video Class 1.1 whose pictures come over a bulk
// endpoint. It is plugged into a port of the kernel's vhci-hcd by the protocol of USB/IP, so that the kernel's own USB core
// and uvcvideo driver drive it. Root is needed, and the modules vhci-hcd and uvcvideo.
//
// It stands in for USB cameras. It does not show isochronous transfers, the bandwidth and the timing of a bus, or the
// mistakes of cameras' firmware. The kernel's UVC gadget cannot be used in its place: it has isochronous endpoints only,
// whose transfers the virtual controllers dummy_hcd and usbip-vudc reject.
package uvctest
