// SPDX-License-Identifier: Apache-2.0

// Package sandbox runs a process that works on input of unknown origin, such as a model, with as few rights as it needs.
//
// Start gives the process no capabilities, no way to more rights (no_new_privs), a lower priority, and a signal that ends
// it with its parent. The process calls Enter before it reads the input: a limit of its memory, and a list of the system
// calls that it may use (seccomp). It cannot make sockets, start programs, change other processes or, without a device,
// write files.
package sandbox
