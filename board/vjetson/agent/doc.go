// SPDX-License-Identifier: Apache-2.0

// Command agent runs inside the virtual Jetson and does what the harness asks for over a virtio-serial port: it runs
// commands, and copies files in and out. As PID 1 of the small root file system it also mounts what a Linux system needs,
// and loads the modules that /modules lists, in their order.
package main
