// SPDX-License-Identifier: Apache-2.0

// Command agent runs in the virtual Jetson and performs the harness's requests over a virtio-serial port: it runs
// commands, and copies files in and out. As PID 1 of the small root file system it also mounts what a Linux system needs,
// and loads the modules listed in /modules, in order.
package main
