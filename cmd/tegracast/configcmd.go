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
       tegracast config tls [--dir DIR] [--name NAME]

  default      print the default configuration, with comments
  check FILE   validate a configuration, - for standard input; after a mistake
               print its file, line and column, and exit with status 2
  schema       print the JSON Schema of the configuration, for editors
  tls          make a certificate, its key and a password, with which other
               machines may see the page, and print what to write into the
               configuration. Existing files stay as they are
`

func configCommand(_ context.Context, e env, args []string) error {
	f := e.flags("config", configUsage)
	dir := f.String("dir", ".", "tls: write web.crt, web.key and web.password to `DIR`")
	also := f.StringArray("name", nil, "tls: other machines call this one `NAME`, a host's name or an address; repeatable (this machine's own are known)")
	if err := parseOptions(f, args); err != nil {
		return err
	}
	a := f.Args()
	isTLS := len(a) == 1 && a[0] == "tls"
	for _, name := range []string{"dir", "name"} {
		if f.Changed(name) && !isTLS {
			return command.UsageError{Err: fmt.Errorf("--%s is for tls alone: try tegracast config --help", name)}
		}
	}
	switch {
	case isTLS:
		return configTLS(e, *dir, *also)
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
	return misused(f, map[string]int{"default": 0, "check": 1, "schema": 0, "tls": 0}, "default, check FILE, schema or tls")
}

// checked is the configuration in a file, or in what comes by the standard input.
func checked(path string) (*config.Appliance, error) {
	if path != "-" {
		return config.Load(path)
	}
	text, err := io.ReadAll(io.LimitReader(os.Stdin, config.MaxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("standard input: %w", err)
	case len(text) > config.MaxFile:
		return nil, command.UsageError{Err: fmt.Errorf("standard input: a configuration has at most %d bytes", config.MaxFile)}
	}
	return config.Parse("standard input", text)
}
