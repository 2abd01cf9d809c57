// SPDX-License-Identifier: Apache-2.0

package config

import (
	"time"

	"github.com/tegracast/tegracast/board/gpio"
	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/pipeline"
)

// Types of a frame rate, a duration, a number of bytes and a line, each of which is one word in the file.
type (
	Rate     = yamlfile.Word[pipeline.Rate]
	Duration = yamlfile.Word[time.Duration]
	Size     = yamlfile.Word[yamlfile.Size]
	lineName = yamlfile.Word[gpio.Line]
)
