// SPDX-License-Identifier: Apache-2.0

// Package sandbox runs a process that works on input of unknown origin, such as a model, with as few rights as it needs.
//
// Start gives the process no capabilities, no way to more rights (no_new_privs), a lower priority, the first place among
// those that end when memory runs out, the files that it needs (Landlock), and a signal that ends it with its parent. It
// closes the parent's memory to all processes of the user. The process calls Enter before it reads the input: limits of
// its memory and threads, and a list of the system calls that it may use (seccomp). It cannot send to others, start
// programs, change other processes or, without a device, make sockets and write files.
//
// Not limited are the time that it takes of processors, disks and a GPU; the threads of root; what it reads in /proc and
// /sys; and with a device what the driver lets it do, the GPU's and shared memory, the size of what it writes, and root's writing to /proc. Where
// the kernel has no Landlock, it can open all files of its user, and the memory of other processes in a sandbox; with a
// device also for writing.
package sandbox
