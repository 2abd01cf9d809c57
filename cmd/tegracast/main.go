// SPDX-License-Identifier: Apache-2.0

// Command tegracast is the streaming appliance. It receives frames from an FPGA camera by DMA into CUDA-visible memory,
// processes them there, and streams or records them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/tegracast/tegracast/cmd/tegracast/appliance"
	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/printable"
)

// Exit statuses (docs/commands.md, "Exit status").
const (
	exitOK      = 0
	exitFailure = 1 // also losses and mismatches
	exitUsage   = 2 // also mistakes in the configuration
	exitDevice  = 3 // the GPU is lost to this process; the next process may use it again
)

// usage returns the program's help.
func usage() string {
	var b strings.Builder
	b.WriteString("tegracast streams an FPGA camera on PCI Express as RTP.\n\nUsage: tegracast COMMAND [OPTIONS]\n\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, "  %-11s %s\n", c.name, c.about)
	}
	b.WriteString("\ntegracast help COMMAND explains a command and its options.\n")
	return b.String()
}

func main() {
	os.Exit(run(untilSignal(), os.Args[1:], os.Stdout, os.Stderr))
}

// untilSignal returns a context that SIGINT or SIGTERM cancels. A second signal ends the process at once, in case the
// shutdown hangs. The cause is context.Canceled, which the program expects. With signal.NotifyContext alone it would be
// another error, which names the signal (since Go 1.26.0).
func untilSignal() context.Context {
	told, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(context.Background())
	context.AfterFunc(told, func() {
		stop()
		cancel()
	})
	return ctx
}

// run runs the command that args names and returns the program's exit status.
func run(ctx context.Context, args []string, out, errw io.Writer) int {
	log, journald := newLogger(errw, slog.LevelInfo, false)
	e := env{Env: terminal.Env{Out: out, Err: errw, Log: log}}
	if len(args) == 0 {
		fmt.Fprint(errw, usage())
		return exitUsage
	}
	switch args[0] {
	case "help", "--help", "-h":
		if len(args) == 1 {
			fmt.Fprint(out, usage())
			return exitOK
		}
		if len(args) > 2 {
			fmt.Fprintf(errw, "tegracast: unexpected argument %q: try tegracast help %s\n", args[2], args[1])
			return exitUsage
		}
		args = []string{args[1], "--help"}
	case "--version":
		args[0] = "version"
	}
	list := commands()
	i := slices.IndexFunc(list, func(c word) bool { return c.name == args[0] })
	if i < 0 {
		kind := "command"
		if strings.HasPrefix(args[0], "-") {
			kind = "option"
		}
		fmt.Fprintf(errw, "tegracast: unknown %s %q%s: try tegracast --help\n", kind, args[0], didYouMean(args[0], names(list), ""))
		return exitUsage
	}
	err := list[i].run(ctx, e, args[1:])
	var u terminal.UsageError
	switch {
	case err == nil || errors.Is(err, pflag.ErrHelp):
		return exitOK
	case errors.Is(err, terminal.ErrChecked):
		if errors.As(err, &u) {
			return exitUsage
		}
		return exitFailure
	case journald:
		fmt.Fprint(errw, lastWords("tegracast "+args[0]+" failed", err))
	default:
		fmt.Fprintf(errw, "tegracast %s: %s\n", args[0], printable.Lines(err.Error()))
	}
	return statusOf(err)
}

// statusOf returns the exit status for an error, which is not nil.
func statusOf(err error) int {
	var u terminal.UsageError
	var c *yamlfile.Error
	switch {
	case pipeline.DeviceLost(err):
		return exitDevice
	case errors.As(err, &u) || errors.As(err, &c) && !appliance.IsTemporary(err):
		return exitUsage
	}
	return exitFailure
}

// word is a command, the first word after tegracast.
type word struct {
	name, about string
	run         func(context.Context, env, []string) error
}

// commands returns the commands in the order of the help.
func commands() []word {
	return []word{
		{"serve", "run the appliance; without a configuration it streams a model of the camera", serve},
		{"reload", "have the service read its configuration again; systemctl reload runs it", reloadCommand},
		{"loopback", "copy memory through the FPGA and compare every byte", loopbackCommand},
		{"probe", "receive a stream and check it: losses, jitter, pixels, latency", probe},
		{"send", "have serve send a stream to one more receiver", sendCommand},
		{"receive", "take frames from a sender by UCX, check them and save them", receiveCommand},
		{"fleet", "list the boards that publish on a message bus", fleetCommand},
		{"record", "look at recordings, check, export and repair them", recordCommand},
		{"doctor", "list what this machine lacks for a real FPGA, and how to fix it", doctorCommand},
		{"bind", "bind a PCI Express function to the kernel module", bindCommand},
		{"config", "print the default configuration, check one, or make a certificate", configCommand},
		{"version", "print version, commit and Go release", version},
		{"completion", "print completions for bash, zsh or fish", completion},
		{"man", "print a manual page", manual},
	}
}

func names(list []word) []string {
	var all []string
	for _, c := range list {
		all = append(all, c.name)
	}
	return all
}

// didYouMean returns a question with prefix and the most similar word, or "" if no word is similar.
func didYouMean(typed string, words []string, prefix string) string {
	if w := terminal.Nearest(typed, words); w != "" {
		return fmt.Sprintf(" (did you mean %s%s?)", prefix, w)
	}
	return ""
}
