// SPDX-License-Identifier: Apache-2.0

// Package chaos tests the program as a service. While two cameras stream to every kind of output, a script removes and
// restores what the service depends on: the name server, the network, the disk, the bus, its readers, the FPGAs, memory,
// and file descriptors. The package contains only tests.
package chaos
