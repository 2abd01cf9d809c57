// SPDX-License-Identifier: Apache-2.0

package lines

// What the tests count on.
const (
	Trusted    = trusted
	BlinkEvery = blinkEvery
)
