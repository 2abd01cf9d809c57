// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/loopback"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/tegra"
)

// pages returns every command with its help and its options.
func pages(ctx context.Context) []terminal.Command {
	var list []terminal.Command
	for _, c := range commands() {
		p := terminal.Command{Name: c.name, About: c.about}
		e := env{Env: terminal.Env{Out: io.Discard, Err: io.Discard}, describe: func(head string, f *pflag.FlagSet) {
			p.Help = head
			f.VisitAll(func(x *pflag.Flag) { p.Flags = append(p.Flags, x) })
		}}
		_ = c.run(ctx, e, []string{"--help"}) // pflag.ErrHelp
		list = append(list, p)
	}
	return list
}

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
	shells[f.Arg(0)](e.Out, pages(ctx))
	return nil
}

func bashCompletion(w io.Writer, list []terminal.Command) {
	fmt.Fprint(w, "# bash completion of tegracast\n_tegracast() {\n\tlocal words=\n\tcase ${COMP_WORDS[1]} in\n")
	var names []string
	for _, p := range list {
		names = append(names, p.Name)
		words := append([]string{"--help"}, subcommands[p.Name]...)
		for _, x := range p.Flags {
			words = append(words, "--"+x.Name)
		}
		fmt.Fprintf(w, "\t%s) words='%s' ;;\n", p.Name, strings.Join(words, " "))
	}
	fmt.Fprint(w, "\tesac\n\tcase ${COMP_WORDS[1]}${COMP_WORDS[COMP_CWORD-1]} in\n") // values; without any, files
	for _, p := range list {
		for _, x := range p.Flags {
			if value, _ := pflag.UnquoteUsage(x); value != "" {
				fmt.Fprintf(w, "\t%s--%s) words='%s' ;;\n", p.Name, x.Name, strings.Join(optionValues[x.Name], " "))
			}
		}
	}
	fmt.Fprintf(w, "\tesac\n\t[ \"$COMP_CWORD\" -eq 1 ] && words='%s --help --version'\n", strings.Join(names, " "))
	fmt.Fprint(w, "\tCOMPREPLY=($(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n}\ncomplete -o default -F _tegracast tegracast\n")
}

func zshCompletion(w io.Writer, list []terminal.Command) {
	quote := func(s string) string {
		return strings.NewReplacer("'", "'\\''", "[", "\\[", "]", "\\]", ":", "\\:").Replace(s)
	}
	fmt.Fprint(w, "#compdef tegracast\nlocal -a commands=(")
	for _, p := range list {
		fmt.Fprintf(w, "'%s:%s' ", p.Name, quote(p.About))
	}
	fmt.Fprint(w, ")\n_arguments '1:command:->command' '*:: :->rest'\n[[ $state == command ]] && _describe command commands && return\ncase $words[1] in\n")
	for _, p := range list {
		fmt.Fprintf(w, "%s) _arguments", p.Name)
		for _, x := range p.Flags {
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
			fmt.Fprintf(w, " '%s--%s[%s]%s'", again, x.Name, quote(usage), value)
		}
		if words := subcommands[p.Name]; words != nil {
			fmt.Fprintf(w, " '1: :(%s)'", strings.Join(words, " "))
		}
		fmt.Fprint(w, " '*:file:_files' ;;\n")
	}
	fmt.Fprint(w, "esac\n")
}

func fishCompletion(w io.Writer, list []terminal.Command) {
	quote := func(s string) string { return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'" }
	for _, p := range list {
		fmt.Fprintf(w, "complete -c tegracast -n __fish_use_subcommand -f -a %s -d %s\n", p.Name, quote(p.About))
		seen := "-n " + quote("__fish_seen_subcommand_from "+p.Name)
		for _, x := range p.Flags {
			value, usage := pflag.UnquoteUsage(x)
			required := ""
			switch values := optionValues[x.Name]; {
			case value != "" && len(values) > 0:
				required = " -x -a " + quote(strings.Join(values, " "))
			case value != "":
				required = " -r -F"
			}
			fmt.Fprintf(w, "complete -c tegracast %s -l %s%s -d %s\n", seen, x.Name, required, quote(usage))
		}
		for _, word := range subcommands[p.Name] {
			fmt.Fprintf(w, "complete -c tegracast %s -f -a %s\n", seen, word)
		}
	}
}

// optionValues lists what shell completion suggests for the values of some options: the values, or prefixes of them.
// For the values of other options it suggests files.
var optionValues = map[string][]string{
	"device": {loopback.ModelName, tegra.DefaultDevice}, "memory": {"host", "cuda", "auto"}, "direction": {"h2c", "c2h", "both"},
	"log-level": {"debug", "info", "warn", "error"}, "log-format": {"text", "json"}, "format": {"mcap", "y4m", "png", "dng", "mkv"},
	"fault": {"F1:", "F2:", "F3:", "F4:", "F5:", "F6:", "F7:", "F8:", "F9:", "F10:", "F11:", "F12:"},
}

// subcommands lists, by command, the words that may be its first argument.
var subcommands = map[string][]string{
	"record": {"info", "verify", "export", "repair"}, "config": {"default", "check", "diff", "schema", "tls"}, "completion": {"bash", "zsh", "fish"},
	"man": {"tegracast", "tegracast.yaml"},
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
