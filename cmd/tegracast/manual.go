// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/tegracast/tegracast/cmd/tegracast/command"
)

// page is what a command says of itself by its flags.
type page struct {
	name, about, head string
	flags             []*pflag.Flag
}

// pages asks every command for its help.
func pages(ctx context.Context) []page {
	var list []page
	for _, c := range commands() {
		p := page{name: c.name, about: c.about}
		e := env{Env: command.Env{Out: io.Discard, Err: io.Discard}, describe: func(head string, f *pflag.FlagSet) {
			p.head = head
			f.VisitAll(func(x *pflag.Flag) { p.flags = append(p.flags, x) })
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
	if err := f.Parse(args); err != nil {
		return parseError(f, err)
	}
	shells := map[string]func(io.Writer, []page){"bash": bashCompletion, "zsh": zshCompletion, "fish": fishCompletion}
	if f.NArg() != 1 || shells[f.Arg(0)] == nil {
		return command.UsageError{Err: errors.New("use bash, zsh or fish: try tegracast completion --help")}
	}
	shells[f.Arg(0)](e.Out, pages(ctx))
	return nil
}

func bashCompletion(w io.Writer, list []page) {
	fmt.Fprint(w, "# bash completion of tegracast\n_tegracast() {\n\tlocal words=\n\tcase ${COMP_WORDS[1]} in\n")
	var names []string
	for _, p := range list {
		names = append(names, p.name)
		words := append([]string{"--help"}, subcommands[p.name]...)
		for _, x := range p.flags {
			words = append(words, "--"+x.Name)
		}
		fmt.Fprintf(w, "\t%s) words='%s' ;;\n", p.name, strings.Join(words, " "))
	}
	fmt.Fprintf(w, "\tesac\n\t[ \"$COMP_CWORD\" -eq 1 ] && words='%s --help --version'\n", strings.Join(names, " "))
	fmt.Fprint(w, "\tCOMPREPLY=($(compgen -W \"$words\" -- \"${COMP_WORDS[COMP_CWORD]}\"))\n}\ncomplete -o default -F _tegracast tegracast\n")
}

func zshCompletion(w io.Writer, list []page) {
	quote := func(s string) string {
		return strings.NewReplacer("'", "'\\''", "[", "\\[", "]", "\\]", ":", "\\:").Replace(s)
	}
	fmt.Fprint(w, "#compdef tegracast\nlocal -a commands=(")
	for _, p := range list {
		fmt.Fprintf(w, "'%s:%s' ", p.name, quote(p.about))
	}
	fmt.Fprint(w, ")\n_arguments '1:command:->command' '*:: :->rest'\n[[ $state == command ]] && _describe command commands && return\ncase $words[1] in\n")
	for _, p := range list {
		fmt.Fprintf(w, "%s) _arguments", p.name)
		for _, x := range p.flags {
			value, usage := pflag.UnquoteUsage(x)
			if value != "" {
				value = ":" + quote(value) + ":_files"
			}
			again := ""
			if strings.HasSuffix(x.Value.Type(), "Array") {
				again = "*"
			}
			fmt.Fprintf(w, " '%s--%s[%s]%s'", again, x.Name, quote(usage), value)
		}
		if words := subcommands[p.name]; words != nil {
			fmt.Fprintf(w, " '1: :(%s)'", strings.Join(words, " "))
		}
		fmt.Fprint(w, " '*:file:_files' ;;\n")
	}
	fmt.Fprint(w, "esac\n")
}

func fishCompletion(w io.Writer, list []page) {
	quote := func(s string) string { return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'" }
	for _, p := range list {
		fmt.Fprintf(w, "complete -c tegracast -n __fish_use_subcommand -f -a %s -d %s\n", p.name, quote(p.about))
		seen := "-n " + quote("__fish_seen_subcommand_from "+p.name)
		for _, x := range p.flags {
			value, usage := pflag.UnquoteUsage(x)
			required := ""
			if value != "" {
				required = " -r"
			}
			fmt.Fprintf(w, "complete -c tegracast %s -l %s%s -d %s\n", seen, x.Name, required, quote(usage))
		}
		for _, word := range subcommands[p.name] {
			fmt.Fprintf(w, "complete -c tegracast %s -a %s\n", seen, word)
		}
	}
}

// subcommands are the words that may follow a command.
var subcommands = map[string][]string{
	"record": {"info", "verify", "export"}, "config": {"default", "check", "schema", "tls"}, "completion": {"bash", "zsh", "fish"},
}

func manual(ctx context.Context, e env, args []string) error {
	f := e.flags("man", "Usage: tegracast man\n\nPrints the manual page. To read it: tegracast man | man -l -\n")
	if err := parse(f, args); err != nil {
		return err
	}
	return writeManual(e.Out, pages(ctx))
}

// writeManual writes man(7).
func writeManual(w io.Writer, list []page) error {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH TEGRACAST 1 \"\" \"tegracast %s\"\n", releaseVersion)
	b.WriteString(".SH NAME\ntegracast \\- streams an FPGA camera on PCI Express as RTP\n.SH SYNOPSIS\n.B tegracast\n.I COMMAND\n[\\fIOPTIONS\\fR]\n")
	for _, p := range list {
		fmt.Fprintf(&b, ".SH TEGRACAST %s\n.nf\n%s.fi\n", strings.ToUpper(p.name), roff(strings.TrimRight(p.head, "\n")+"\n"))
		for _, x := range p.flags {
			value, usage := pflag.UnquoteUsage(x)
			if value != "" {
				value = " \\fI" + roff(value) + "\\fR"
			}
			fmt.Fprintf(&b, ".TP\n\\fB\\-\\-%s\\fR%s\n%s%s\n", roff(x.Name), value, roff(usage), roff(defaultText(x)))
		}
	}
	b.WriteString(`.SH EXIT STATUS
.TP
0
success; serve: stopped by SIGTERM or SIGINT
.TP
1
failure; also losses, damage or mismatches that a check has found
.TP
2
mistake in usage or configuration; a restart does not help
.TP
3
serve, loopback: this process has lost the GPU after a fault of a kernel, of its
memory or of its link (a sticky CUDA error); restart it
.SH FILES
.TP
/etc/tegracast/tegracast.yaml
configuration of the service
.TP
/run/tegracast
SDP file of each stream of the service
.TP
/var/lib/tegracast
state of the service, such as the number of consecutive failed starts
.SH SEE ALSO
systemctl(1), journalctl(1)
`)
	_, err := io.WriteString(w, b.String())
	return err
}

func defaultText(x *pflag.Flag) string {
	if slices.Contains([]string{"", "false", "[]", "."}, x.DefValue) {
		return ""
	}
	return " (default " + x.DefValue + ")"
}

// roff makes text that man(7) shows as it is.
func roff(s string) string {
	lines := strings.Split(strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s), "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
			lines[i] = `\&` + l
		}
	}
	return strings.Join(lines, "\n")
}
