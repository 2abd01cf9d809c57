// SPDX-License-Identifier: Apache-2.0

// Package chaos is a test of the program as a service: while two cameras stream to every kind of output, a script takes away what the service
// depends on (the name server, the network, the disk, the bus, its readers, the FPGAs, memory, file descriptors) and gives it back. It has no
// code but tests.
package chaos
