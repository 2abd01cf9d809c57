// SPDX-License-Identifier: Apache-2.0

// Package vfiousertest is a vfio-user client for tests. It is written from the specification (QEMU,
// docs/interop/vfio-user.rst) and shares no code with the server, so that each reveals the other's mistakes. It does
// not show what QEMU does; tests in the virtual Jetson do.
package vfiousertest
