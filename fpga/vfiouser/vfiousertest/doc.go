// SPDX-License-Identifier: Apache-2.0

// Package vfiousertest is a vfio-user client for tests. It is written from the text of the specification (QEMU,
// docs/interop/vfio-user.rst) and shares nothing with the server, so that each shows the mistakes of the other.
package vfiousertest
