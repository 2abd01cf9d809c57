// SPDX-License-Identifier: Apache-2.0

// Package auto determines exposure and white balance from the statistics of the isp. It only does arithmetic: the owner
// of the sensor passes statistics to it, and writes the answers to registers.
package auto
