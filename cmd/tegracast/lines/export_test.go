// SPDX-License-Identifier: Apache-2.0

package lines

// Constants for the tests.
const (
	Trusted    = trusted
	BlinkEvery = blinkEvery
)
