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

// maxTask is more than the longest task, which has all labels.
const maxTask = 64 << 20

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
	text, err := io.ReadAll(io.LimitReader(os.Stdin, maxTask))
	if err != nil {
		return err
	}
	var t infer.Task
	if err := json.Unmarshal(text, &t); err != nil {
		return fmt.Errorf("the model's configuration: %w", err)
	}
	return infer.Work(ctx, t, frames, reports, e.Log)
}
