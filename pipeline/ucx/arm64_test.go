// SPDX-License-Identifier: Apache-2.0

//go:build !arm64

package ucx

import (
	"testing"

	"github.com/tegracast/tegracast/pipeline/arm64test"
)

func TestInboxOnARM64(t *testing.T) { arm64test.Run(t, "^TestInbox$") }
