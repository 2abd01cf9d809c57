// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
)

// word is a command, the first word after tegracast, or a subcommand.
type word struct {
	name, about string
	run         func(context.Context, env, []string) error
	words       []word   // its subcommands, for choose
	takes       []string // what its first argument may be, for completions
}

// find returns the word with a name, or nil.
func find(list []word, name string) *word {
	if i := slices.IndexFunc(list, func(w word) bool { return w.name == name }); i >= 0 {
		return &list[i]
	}
	return nil
}

func names(list []word) []string {
	var all []string
	for _, w := range list {
		all = append(all, w.name)
	}
	return all
}

// table returns a line for each word, with its name and what it does.
func table(list []word) string {
	width := 0
	for _, name := range names(list) {
		width = max(width, len(name))
	}
	var b strings.Builder
	for _, w := range list {
		fmt.Fprintf(&b, "  %-*s  %s\n", width, w.name, w.about)
	}
	return b.String()
}

// choose returns a command whose first argument names one of its subcommands, which gets the other arguments. about is a
// sentence for its help.
func choose(name, about string, words []word) word {
	help := fmt.Sprintf("Usage: tegracast %s COMMAND [OPTIONS]\n\n%s\n\n%s\n"+
		"tegracast help %[1]s COMMAND explains one of them and its options.\n", name, about, table(words))
	run := func(ctx context.Context, e env, args []string) error {
		f := e.flags(name, help)
		f.SetInterspersed(false) // options behind the subcommand are its own
		if err := parseOptions(f, args); err != nil {
			return err
		}
		use := fmt.Sprintf("use one of %s: try tegracast %s --help", strings.Join(names(words), ", "), name)
		if f.NArg() == 0 {
			return terminal.UsageError{Err: fmt.Errorf("the command is missing: %s", use)}
		}
		w := find(words, f.Arg(0))
		if w == nil {
			return terminal.UsageError{Err: fmt.Errorf("unknown command %q%s: %s", f.Arg(0), didYouMean(f.Arg(0), names(words), ""), use)}
		}
		return w.run(ctx, e, f.Args()[1:])
	}
	return word{name: name, about: strings.TrimSuffix(strings.ToLower(about[:1])+about[1:], "."), run: run, words: words}
}
