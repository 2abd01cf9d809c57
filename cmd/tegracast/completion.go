// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"github.com/tegracast/tegracast/cmd/tegracast/loopback"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/tegra"
)

const completionUsage = `Usage: tegracast completion bash | zsh | fish

Prints a script that completes the commands and options of tegracast in a shell:

  bash   . <(tegracast completion bash)
  zsh    tegracast completion zsh > "${fpath[1]}/_tegracast"
  fish   tegracast completion fish | source
`

func completion(ctx context.Context, e env, args []string) error {
	f := e.flags("completion", completionUsage)
	if err := parseOptions(f, args); err != nil {
		return err
	}
	shells := map[string]func(io.Writer, []terminal.Command){"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}
	if f.NArg() != 1 || shells[f.Arg(0)] == nil {
		return terminal.UsageError{Err: errors.New("use bash, zsh or fish: try tegracast completion --help")}
	}
	list := pages(ctx)
	for _, w := range commands() {
		if len(w.words) > 0 {
			list = append(list, terminal.Command{Name: "help " + w.name, Words: names(w.words)})
		}
	}
	shells[f.Arg(0)](e.Out, list)
	return nil
}

// nested returns the names that consist of a command and a subcommand, each in quotes, with a separator between them.
func nested(list []terminal.Command, separator string) string {
	var all []string
	for _, p := range list {
		if strings.Contains(p.Name, " ") {
			all = append(all, "'"+p.Name+"'")
		}
	}
	return strings.Join(all, separator)
}

func bashCompletion(w io.Writer, list []terminal.Command) {
	fmt.Fprintf(w, "# bash completion of tegracast\n_tegracast() {\n\tlocal command=${COMP_WORDS[1]} typed=${COMP_WORDS[COMP_CWORD]} words= options=\n"+
		"\tcase \"$command ${COMP_WORDS[2]}\" in %s) [ \"$COMP_CWORD\" -gt 2 ] && command+=\" ${COMP_WORDS[2]}\" ;; esac\n"+
		"\tcase $command in\n", nested(list, " | "))
	for _, p := range list {
		options := ""
		for _, x := range p.Flags {
			options += " --" + x.Name
		}
		fmt.Fprintf(w, "\t'%s') words='%s' options='--help%s' ;;\n", p.Name, strings.Join(p.Words, " "), options)
	}
	fmt.Fprintf(w, "\tesac\n\t[ \"$COMP_CWORD\" -eq 1 ] && words='%s' options='--help --version'\n\t[[ $typed == -* ]] && words=$options\n"+
		"\tcase $command${COMP_WORDS[COMP_CWORD-1]} in\n", strings.Join(names(commands()), " ")) // values; without any, files
	for _, p := range list {
		for _, x := range p.Flags {
			if value, _ := pflag.UnquoteUsage(x); value != "" {
				name := strings.ReplaceAll(terminal.OptionName(x), ", ", "' | '"+p.Name)
				fmt.Fprintf(w, "\t'%s%s') words='%s' ;;\n", p.Name, name, strings.Join(optionValues[x.Name], " "))
			}
		}
	}
	fmt.Fprint(w, "\tesac\n\tCOMPREPLY=($(compgen -W \"$words\" -- \"$typed\"))\n}\ncomplete -o default -F _tegracast tegracast\n")
}

func zshCompletion(w io.Writer, list []terminal.Command) {
	quote := func(s string) string {
		return strings.NewReplacer("'", "'\\''", "[", "\\[", "]", "\\]", ":", "\\:").Replace(s)
	}
	fmt.Fprint(w, "#compdef tegracast\nlocal -a commands=(")
	for _, c := range commands() {
		fmt.Fprintf(w, "'%s:%s' ", c.name, quote(c.about))
	}
	fmt.Fprintf(w, ")\n_arguments '1:command:->command' '*:: :->rest'\n[[ $state == command ]] && _describe command commands && return\n"+
		"local command=$words[1]\ncase \"$command $words[2]\" in (%s) (( CURRENT > 2 )) && { command+=\" $words[2]\"; shift words; (( CURRENT-- )) } ;; esac\n"+
		"case $command in\n", nested(list, " | "))
	for _, p := range list {
		fmt.Fprintf(w, "('%s') _arguments", p.Name)
		for _, x := range p.Flags {
			fmt.Fprintf(w, " '%s'", zshOption(x, quote))
		}
		if len(p.Words) > 0 {
			fmt.Fprintf(w, " '1: :(%s)'", strings.Join(p.Words, " "))
		}
		fmt.Fprint(w, " '*:file:_files' ;;\n")
	}
	fmt.Fprint(w, "esac\n")
}

// zshOption returns an option as zsh's _arguments takes it.
func zshOption(x *pflag.Flag, quote func(string) string) string {
	value, usage := pflag.UnquoteUsage(x)
	if value != "" {
		values := "_files"
		if list := optionValues[x.Name]; list != nil {
			values = "(" + quote(strings.Join(list, " ")) + ")"
		}
		value = ":" + quote(value) + ":" + values
	}
	again := ""
	if strings.HasSuffix(x.Value.Type(), "Array") {
		again = "*"
	}
	return fmt.Sprintf("%s--%s[%s]%s", again, x.Name, quote(usage), value)
}

func fishCompletion(w io.Writer, list []terminal.Command) {
	quote := func(s string) string { return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'" }
	for _, c := range commands() {
		fmt.Fprintf(w, "complete -c tegracast -n __fish_use_subcommand -f -a %s -d %s\n", c.name, quote(c.about))
	}
	for _, p := range list {
		seen := "-n " + quote("__fish_seen_subcommand_from "+strings.ReplaceAll(p.Name, " ", "; and __fish_seen_subcommand_from "))
		for _, x := range p.Flags {
			value, usage := pflag.UnquoteUsage(x)
			required := ""
			switch values := optionValues[x.Name]; {
			case value != "" && len(values) > 0:
				required = " -x -a " + quote(strings.Join(values, " "))
			case value != "":
				required = " -r -F"
			}
			if x.Shorthand != "" {
				required = " -s " + x.Shorthand + required
			}
			fmt.Fprintf(w, "complete -c tegracast %s -l %s%s -d %s\n", seen, x.Name, required, quote(usage))
		}
		for _, word := range p.Words {
			fmt.Fprintf(w, "complete -c tegracast %s -f -a %s\n", seen, word)
		}
	}
}

// optionValues lists what shell completion suggests for the values of some options: the values, or prefixes of them.
// For the values of other options it suggests files.
var optionValues = map[string][]string{
	"device": {loopback.ModelName, tegra.DefaultDevice}, "memory": {"host", "cuda", "auto"}, "direction": {"h2c", "c2h", "both"},
	"log-level": {"debug", "info", "warn", "error"}, "log-format": {"text", "json"}, "format": {"mcap", "y4m", "png", "dng", "mp4", "mkv"},
	"fault": {"F1:", "F2:", "F3:", "F4:", "F5:", "F6:", "F7:", "F8:", "F9:", "F10:", "F11:", "F12:"},
}
