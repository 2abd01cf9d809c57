// SPDX-License-Identifier: Apache-2.0

//go:build !modelcontrol

package device

// control does nothing in programs without the tag modelcontrol (modelcontrol.go).
func control(*Model, uint64) (stop func(), err error) { return func() {}, nil }
