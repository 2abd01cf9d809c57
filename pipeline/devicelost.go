// SPDX-License-Identifier: Apache-2.0

package pipeline

// A DeviceError is the error of a device that may be lost to this process, as a GPU is after a fault of a kernel.
// cudahost.Error is one.
type DeviceError interface {
	error
	// Sticky says whether the device is lost: every further call fails, and only a new process can use it again.
	Sticky() bool
}

// DeviceLost says whether err is, wraps or joins a DeviceError whose device is lost. errors.As would stop at the first
// DeviceError, and another one that err joins may be the lost device's.
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
