// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/tegracast/tegracast/cmd/tegracast/command"
	"github.com/tegracast/tegracast/cmd/tegracast/config"
)

const configUsage = `Usage: tegracast config default | check FILE | schema

  default      print the default configuration, with comments
  check FILE   validate a configuration, - for standard input; after a mistake
               print its file, line and column, and exit with status 2
  schema       print the JSON Schema of the configuration, for editors
`

func configCommand(_ context.Context, e env, args []string) error {
	f := e.flags("config", configUsage)
	if err := f.Parse(args); err != nil {
		return parseError(f, err)
	}
	switch a := f.Args(); {
	case len(a) == 1 && a[0] == "default":
		_, err := e.Out.Write(config.Default())
		return err
	case len(a) == 2 && a[0] == "check":
		c, err := checked(a[1])
		if err != nil {
			return err
		}
		fmt.Fprintf(e.Out, "%s: good: sources %d, isp %d, outputs %d\n", a[1], len(c.Sources), c.ISPs(), len(c.Outputs))
		return nil
	case len(a) == 1 && a[0] == "schema":
		return config.WriteSchema(e.Out)
	}
	return command.UsageError{Err: fmt.Errorf("use default, check FILE or schema: try tegracast config --help")}
}

// checked is the configuration in a file, or in what comes by the standard input.
func checked(path string) (*config.Appliance, error) {
	if path != "-" {
		return config.Load(path)
	}
	text, err := io.ReadAll(io.LimitReader(os.Stdin, config.MaxFile))
	if err != nil {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	return config.Parse("standard input", text)
}
