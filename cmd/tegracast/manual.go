// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/spf13/pflag"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
)

// pages returns every command and subcommand with its help and its options.
func pages(ctx context.Context) []terminal.Command { return pagesOf(ctx, "", commands()) }

func pagesOf(ctx context.Context, prefix string, words []word) (list []terminal.Command) {
	for _, w := range words {
		p := terminal.Command{Name: prefix + w.name, About: w.about, Words: append(names(w.words), w.takes...)}
		e := env{Env: terminal.Env{Out: io.Discard, Err: io.Discard}, describe: func(head string, f *pflag.FlagSet) {
			p.Help = head
			f.VisitAll(func(x *pflag.Flag) { p.Flags = append(p.Flags, x) })
		}}
		_ = w.run(ctx, e, []string{"--help"}) // pflag.ErrHelp
		list = append(append(list, p), pagesOf(ctx, p.Name+" ", w.words)...)
	}
	return list
}

const manualUsage = `Usage: tegracast man [tegracast | tegracast.yaml]

Prints a manual page: tegracast(1), of the commands and their options, or
tegracast.yaml(5), of the keys of the configuration. To read it:

  tegracast man | man -l -
`

func manual(ctx context.Context, e env, args []string) error {
	f := e.flags("man", manualUsage)
	if err := parseOptions(f, args); err != nil {
		return err
	}
	build := terminal.Build{Version: versionName(), Day: commitDay()}
	switch {
	case f.NArg() == 0 || f.NArg() == 1 && f.Arg(0) == "tegracast":
		return terminal.Program(e.Out, build, pages(ctx))
	case f.NArg() == 1 && f.Arg(0) == "tegracast.yaml":
		var schema bytes.Buffer
		if err := config.WriteSchema(&schema); err != nil {
			return err
		}
		return terminal.Configuration(e.Out, build, schema.Bytes(), string(config.Default()))
	}
	return terminal.UsageError{Err: errors.New("use tegracast or tegracast.yaml: try tegracast man --help")}
}
