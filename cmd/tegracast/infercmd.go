// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/pipeline/infer"
)

const inferUsage = `Usage: tegracast infer

Runs the model of a stage (docs/inference.md). serve starts one such process for
each stage infer, with few rights: a model that crashes ends its process alone.
`

// Descriptors that the process inherits (infer.StageConfig.Command).
const (
	framesDescriptor  = 3
	reportsDescriptor = 4
)

// maxModelConfig is more than the longest configuration of a model, which has all labels.
const maxModelConfig = 64 << 20

func inferCommand(ctx context.Context, e env, args []string) error {
	f := e.flags("infer", inferUsage)
	if err := parseOptions(f, args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return terminal.UsageError{Err: errors.New("no arguments: serve starts this command")}
	}
	frames, reports := os.NewFile(framesDescriptor, "frames"), os.NewFile(reportsDescriptor, "reports")
	if info, err := frames.Stat(); err != nil || info.Mode()&os.ModeSocket == 0 {
		return terminal.UsageError{Err: errors.New("serve starts this command, for a stage infer: see docs/inference.md")}
	}
	text, err := io.ReadAll(io.LimitReader(os.Stdin, maxModelConfig))
	if err != nil {
		return err
	}
	var c infer.Config
	if err := json.Unmarshal(text, &c); err != nil {
		return fmt.Errorf("the model's configuration: %w", err)
	}
	return infer.Work(ctx, c, frames, reports, e.Log)
}
