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
	return "tegracast streams an FPGA camera on PCI Express as RTP.\n\nUsage: tegracast COMMAND [OPTIONS]\n\n" +
		table(commands()) + "\ntegracast help COMMAND explains a command and its options.\n"
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
	case "--help", "-h":
		args[0] = "help"
	case "--version", "-V":
		args[0] = "version"
	}
	list := commands()
	command := find(list, args[0])
	if command == nil {
		kind := "command"
		if strings.HasPrefix(args[0], "-") {
			kind = "option"
		}
		fmt.Fprintf(errw, "tegracast: unknown %s %q%s: try tegracast --help\n", kind, args[0], didYouMean(args[0], names(list), ""))
		return exitUsage
	}
	err := command.run(ctx, e, args[1:])
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

// commands returns the commands in the order of the help.
func commands() []word {
	list := []word{
		{name: "serve", about: "run the appliance; without a configuration it streams a model of the camera", run: serve},
		{name: "reload", about: "have the service read its configuration again; systemctl reload runs it", run: reloadCommand},
		{name: "loopback", about: "copy memory through the FPGA and compare every byte", run: loopbackCommand},
		{name: "probe", about: "receive a stream and check it: losses, jitter, pixels, latency", run: probe},
		{name: "send", about: "have serve send a stream to one more receiver", run: sendCommand},
		{name: "start", about: "have serve start a stopped output", run: startCommand},
		{name: "stop", about: "have serve stop an output", run: stopCommand},
		{name: "trigger", about: "have serve trigger a recording", run: triggerCommand},
		{name: "set", about: "have serve set a camera's exposure or an isp's white balance", run: setCommand},
		{name: "receive", about: "take frames from a sender by UCX, check them and save them", run: receiveCommand},
		{name: "fleet", about: "list the boards that publish on a message bus", run: fleetCommand},
		choose("record", "List recordings, check, export and repair them.", recordWords),
		{name: "doctor", about: "list what this machine lacks for a real FPGA, and how to fix it", run: doctorCommand},
		{name: "bind", about: "bind a PCI Express function to the kernel module", run: bindCommand},
		choose("config", "Print the default configuration, check one, or make a certificate.", configWords),
		{name: "infer", about: "run a model for serve, which starts this command itself", run: inferCommand},
		{name: "version", about: "print version, commit and Go release", run: version},
		{name: "completion", about: "print completions for bash, zsh or fish", run: completion, takes: []string{"bash", "fish", "zsh"}},
		{name: "man", about: "print a manual page", run: manual, takes: []string{"tegracast", "tegracast.yaml"}},
		{name: "help", about: "explain a command and its options", run: help},
	}
	list[len(list)-1].takes = names(list)
	return list
}

const helpUsage = `Usage: tegracast help [COMMAND [COMMAND]]

Explains a command and its options, or lists the commands.
`

func help(ctx context.Context, e env, args []string) error {
	f := e.flags("help", helpUsage)
	if err := parseOptions(f, args); err != nil {
		return err
	}
	if f.NArg() == 0 {
		fmt.Fprint(e.Out, usage())
		return nil
	}
	w := word{words: commands()}
	for i, name := range f.Args() {
		next := find(w.words, name)
		switch {
		case next == nil && len(w.words) == 0:
			return terminal.UsageError{Err: fmt.Errorf("unexpected argument %q: try tegracast help %s", name, strings.Join(f.Args()[:i], " "))}
		case next == nil:
			above := strings.Join(append([]string{"tegracast"}, f.Args()[:i]...), " ")
			return terminal.UsageError{Err: fmt.Errorf("unknown command %q%s: try %s --help", name, didYouMean(name, names(w.words), ""), above)}
		}
		w = *next
	}
	return w.run(ctx, e, []string{"--help"})
}
