// SPDX-License-Identifier: Apache-2.0

//go:build modelcontrol && !amd64

package device

import (
	"errors"
	"time"
)

func stepWall(time.Duration) error { return errors.ErrUnsupported }
