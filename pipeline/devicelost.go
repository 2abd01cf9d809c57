// SPDX-License-Identifier: Apache-2.0

package pipeline

// A DeviceError is an error from a device that can be lost to this process, as a GPU is after a fault in a kernel.
// cudahost.Error implements it.
type DeviceError interface {
	error
	// Sticky reports whether the device is lost: every further call will fail, and only a new process can use the
	// device again.
	Sticky() bool
}

// DeviceLost reports whether err is, wraps or joins a DeviceError whose device is lost. It does not use errors.As,
// which would stop at the first DeviceError although another one that err joins may be sticky.
func DeviceLost(err error) bool {
	if e, ok := any(err).(DeviceError); ok && e.Sticky() {
		return true
	}
	switch e := any(err).(type) {
	case interface{ Unwrap() error }:
		return DeviceLost(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, each := range e.Unwrap() {
			if DeviceLost(each) {
				return true
			}
		}
	}
	return false
}
