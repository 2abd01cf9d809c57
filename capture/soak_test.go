// SPDX-License-Identifier: Apache-2.0

//go:build !race

package capture

import "time"

// A quarter of an hour of virtual time with 20 seeds, each twice, and three runs of each fault. Under the race detector,
// which would take minutes, the values are smaller.
const (
	soakSeeds = 20
	soakTime  = 15 * time.Minute

	faultSeeds = 3
)
