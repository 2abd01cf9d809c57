// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"github.com/tegracast/tegracast/cmd/tegracast/command"
)

// env is what a command works in.
type env struct {
	command.Env
	describe func(head string, f *pflag.FlagSet) // gets a command's help in place of Out; nil: Out has it
}

// flags makes the option parser of a command; help is printed to out with the given head.
func (e env) flags(name, head string) *pflag.FlagSet {
	f := pflag.NewFlagSet(name, pflag.ContinueOnError)
	f.SortFlags = false
	f.SetOutput(io.Discard)
	f.Usage = func() {
		switch {
		case e.describe != nil:
			e.describe(head, f)
		case f.HasFlags():
			fmt.Fprintf(e.Out, "%s\nOptions:\n%s", head, f.FlagUsages())
		default:
			fmt.Fprint(e.Out, head)
		}
	}
	return f
}

// parse parses args and refuses arguments that are left over.
func parse(f *pflag.FlagSet, args []string) error {
	if err := f.Parse(args); err != nil {
		return parseError(f, err)
	}
	if f.NArg() > 0 {
		return command.UsageError{Err: fmt.Errorf("unexpected argument %q: try tegracast %s --help", f.Arg(0), f.Name())}
	}
	return nil
}

// parseError is what the program says of options that cannot be parsed; a wish for help is no mistake.
func parseError(f *pflag.FlagSet, err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return err
	}
	var unknown *pflag.NotExistError
	near := ""
	if errors.As(err, &unknown) && len(unknown.GetSpecifiedName()) > 1 {
		var all []string
		f.VisitAll(func(x *pflag.Flag) { all = append(all, x.Name) })
		near = didYouMean(unknown.GetSpecifiedName(), all, "--")
	}
	return command.UsageError{Err: fmt.Errorf("%w%s: try tegracast %s --help", err, near, f.Name())}
}
