// SPDX-License-Identifier: Apache-2.0

// Package rtptest is what tests of RTP streams have in common: pictures, a source of frames, free ports, networks of
// their own, and how late the machine is. Its own tests join both ends: what package send sends is what package receive receives.
package rtptest
