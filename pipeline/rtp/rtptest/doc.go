// SPDX-License-Identifier: Apache-2.0

// Package rtptest contains what tests of RTP streams have in common: pictures, a source of frames, free ports, separate
// networks, and measurements of how late the machine is. Its own tests connect both ends: package receive receives what
// package send sends. Networks on one machine do not show what switches and network cards do.
package rtptest
