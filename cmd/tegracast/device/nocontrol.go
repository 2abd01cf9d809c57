// SPDX-License-Identifier: Apache-2.0

//go:build !modelcontrol

package device

// control is for programs that are built for tests (modelcontrol.go).
func control(*Model, uint64) (stop func(), err error) { return func() {}, nil }
