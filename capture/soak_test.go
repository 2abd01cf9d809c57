// SPDX-License-Identifier: Apache-2.0

//go:build !race

package capture

import "time"

// Half an hour of virtual time at 20 seeds, each twice. The race detector, under which this takes minutes, gets less.
const (
	soakSeeds = 20
	soakTime  = 30 * time.Minute
)
