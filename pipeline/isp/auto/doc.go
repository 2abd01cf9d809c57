// SPDX-License-Identifier: Apache-2.0

// Package auto decides exposure and white balance from the statistics of the isp. It does arithmetic only: the owner of
// the sensor passes it statistics, and writes the answers to registers.
package auto
