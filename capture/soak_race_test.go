// SPDX-License-Identifier: Apache-2.0

//go:build race

package capture

import "time"

const (
	soakSeeds = 2
	soakTime  = 2 * time.Minute

	faultSeeds = 1
)
