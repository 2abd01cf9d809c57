// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
)

// env is the environment of a command.
type env struct {
	terminal.Env
	describe func(head string, f *pflag.FlagSet) // receives a command's help; nil: the help is printed to Out
}

// flags returns the option parser of the command name. Its Usage prints head and the options to Out, or passes them to
// describe.
func (e env) flags(name, head string) *pflag.FlagSet {
	f := pflag.NewFlagSet(name, pflag.ContinueOnError)
	f.SortFlags = false
	f.SetOutput(io.Discard)
	f.Usage = func() {
		switch {
		case e.describe != nil:
			e.describe(head, f)
		case f.HasFlags():
			fmt.Fprintf(e.Out, "%s\nOptions:\n%s", head, optionTexts(f))
		default:
			fmt.Fprint(e.Out, head)
		}
	}
	return f
}

// parse parses the options in args, and returns an error if one is invalid or there are other arguments.
func parse(f *pflag.FlagSet, args []string) error {
	_, err := parseFiles(f, args, 0, 0)
	return err
}

// parseOptions parses the options in args and leaves the other arguments to the command. It returns an error if an
// option is invalid, or if an option of type string is given an empty value.
func parseOptions(f *pflag.FlagSet, args []string) error {
	if err := f.Parse(args); err != nil {
		return parseError(f, err)
	}
	var err error
	f.Visit(func(x *pflag.Flag) {
		if x.Value.Type() == "string" && x.Value.String() == "" {
			err = terminal.UsageError{Err: fmt.Errorf("--%s: the value is empty: give one, or leave --%s out", x.Name, x.Name)}
		}
	})
	return err
}

// parseError returns the program's error for an error of the option parser. It returns pflag.ErrHelp, which is a
// request for help, unchanged.
func parseError(f *pflag.FlagSet, err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return err
	}
	var unknown *pflag.NotExistError
	var bare *pflag.ValueRequiredError
	var invalid *pflag.InvalidValueError
	var garbled *pflag.InvalidSyntaxError
	what := ""
	switch {
	case errors.As(err, &unknown):
		what = unknownOption(f, unknown)
	case errors.As(err, &bare):
		name, _ := pflag.UnquoteUsage(bare.GetFlag())
		what = fmt.Sprintf("--%s: the value is missing: write --%s %s", bare.GetFlag().Name, bare.GetFlag().Name, name)
	case errors.As(err, &invalid):
		what = fmt.Sprintf("--%s %s: %s", invalid.GetFlag().Name, invalid.GetValue(), wanted(invalid))
	case errors.As(err, &garbled):
		what = fmt.Sprintf("%q is no option", garbled.GetSpecifiedFlag())
	default:
		what = err.Error()
	}
	return terminal.UsageError{Err: fmt.Errorf("%s: try tegracast %s --help", what, f.Name())}
}

// unknownOption returns a message about an unknown option. For a long option it also names the most similar existing
// one, if any is similar.
func unknownOption(f *pflag.FlagSet, e *pflag.NotExistError) string {
	if e.GetSpecifiedShortnames() != "" {
		return "unknown option -" + e.GetSpecifiedName()
	}
	var all []string
	f.VisitAll(func(x *pflag.Flag) { all = append(all, x.Name) })
	return "unknown option --" + e.GetSpecifiedName() + didYouMean(e.GetSpecifiedName(), all, "--")
}

// wanted returns a description of the values that an option accepts. For a type without a description it is the text of
// the error.
func wanted(e *pflag.InvalidValueError) string {
	switch e.GetFlag().Value.Type() {
	case "int":
		return "must be a whole number, such as " + e.GetFlag().DefValue
	case "uint64":
		return "must be a whole number from 0, such as 4096 or 0x1000"
	case "float64":
		return "must be a number, such as " + e.GetFlag().DefValue
	case "bool":
		return "must be true or false, or nothing, which is true"
	case "duration":
		return "must be a time with its unit, such as 30s, 500ms or 1m30s"
	}
	return e.Unwrap().Error()
}

// parseFiles parses the options in args, and returns the other arguments, of which there must be from least to most.
func parseFiles(f *pflag.FlagSet, args []string, least, most int) ([]string, error) {
	if err := parseOptions(f, args); err != nil {
		return nil, err
	}
	switch {
	case f.NArg() < least:
		return nil, terminal.UsageError{Err: fmt.Errorf("the file is missing: try tegracast %s --help", f.Name())}
	case f.NArg() > most:
		return nil, terminal.UsageError{Err: fmt.Errorf("unexpected argument %q: try tegracast %s --help", f.Arg(most), f.Name())}
	}
	return f.Args(), nil
}

// didYouMean returns a question with prefix and the most similar word, or "" if no word is similar.
func didYouMean(typed string, words []string, prefix string) string {
	if w := terminal.Nearest(typed, words); w != "" {
		return fmt.Sprintf(" (did you mean %s%s?)", prefix, w)
	}
	return ""
}

// optionTexts returns the help on options: their names in a column, and what they do in another one.
func optionTexts(f *pflag.FlagSet) string {
	const width = 80
	var heads, texts []string
	column := 0
	f.VisitAll(func(x *pflag.Flag) {
		value, does := pflag.UnquoteUsage(x)
		head := strings.TrimSpace(terminal.OptionName(x) + " " + value)
		if x.Shorthand == "" {
			head = "    " + head // as long as -o, in front of others
		}
		heads, texts = append(heads, "  "+head), append(texts, does+terminal.DefaultText(x))
		column = max(column, len(head)+4)
	})
	var b strings.Builder
	for i, head := range heads {
		line := fmt.Sprintf("%-*s", column-1, head)
		for _, w := range strings.Fields(texts[i]) {
			if len(line)+1+len(w) > width && len(line) > column {
				b.WriteString(line + "\n")
				line = strings.Repeat(" ", column-1)
			}
			line += " " + w
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// size is an option for a number of bytes, with or without a unit.
type size int

func (s *size) String() string { return strconv.Itoa(int(*s)) }

// Type implements pflag.Value.
func (s *size) Type() string { return "bytes" }

// Set implements pflag.Value.
func (s *size) Set(text string) error {
	if n, err := strconv.ParseInt(text, 0, 64); err == nil {
		*s = size(n)
		return nil
	}
	var n yamlfile.Size
	if n.UnmarshalText([]byte(text)) != nil {
		return errors.New("must be a number of bytes, or a size such as 4MB or 16MiB")
	}
	*s = size(n)
	return nil
}
