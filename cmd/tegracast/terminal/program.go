// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Command is a command of the program with its help.
type Command struct {
	Name, About string
	Help        string // usage, an empty line, and paragraphs
	Flags       []*pflag.Flag
	Words       []string // what its first argument may be; empty: not known
}

// OptionName returns an option as it is typed, with its short form, if it has one.
func OptionName(x *pflag.Flag) string {
	if x.Shorthand != "" {
		return "-" + x.Shorthand + ", --" + x.Name
	}
	return "--" + x.Name
}

// A Pair is an entry of Statuses, Signals or Files: a term and its meaning.
type Pair struct{ Term, Text string }

// Parts of tegracast(1) after the commands.
var (
	// Examples are command lines and their effects.
	Examples = []struct{ Line, Does string }{
		{"tegracast serve", "Streams the model of the camera to this machine, and prints how to watch it."},
		{"tegracast config default > camera.yaml", "Writes a configuration to begin with."},
		{"tegracast config check camera.yaml", "Looks for mistakes in it."},
		{"tegracast serve --config camera.yaml --sdp-dir /tmp", "Streams what it describes."},
		{"tegracast send raw 192.0.2.7:5004 > raw.sdp", "Has a running serve send a stream to one more receiver, which needs raw.sdp."},
		{"tegracast probe raw.sdp --duration 30s", "Receives a stream for half a minute, and checks every frame."},
		{"tegracast loopback --device /dev/tegra_p2p0 --size 16777216", "Has the FPGA copy 16 MiB, and compares every byte."},
		{"tegracast doctor --service", "Says what this machine lacks, as the service sees it."},
	}
	Statuses = []Pair{
		{"0", "success; serve: stopped by SIGTERM or SIGINT"},
		{"1", "failure; also losses, damage or mismatches that a check has found"},
		{"2", "mistake in usage or configuration; a restart does not help"},
		{"3", "serve, loopback: this process has lost the GPU after a fault of a kernel, of its\nmemory or of its link (a sticky CUDA error); restart it"},
	}
	Signals = []Pair{
		{"SIGTERM, SIGINT", "serve ends in order: receivers get an RTCP BYE, recordings their end"},
		{"SIGHUP", "serve reads its configuration again and restarts only what changed; it ends if the terminal has closed, or if there is no file to read"},
		{"SIGUSR1", "serve triggers the recordings that wait for a trigger"},
	}
	Files = []Pair{
		{"/etc/tegracast/tegracast.yaml", "configuration of the service"},
		{"/etc/default/tegracast", "more options of the service, as TEGRACAST_OPTIONS=--log-level debug; it need not be there"},
		{"/run/tegracast", "SDP file of each stream of the service; what came of its last reload (reload.json)"},
		{
			"/var/lib/tegracast", "state of the service: the configuration that was changed on the page (tegracast.yaml, and .old), " +
				"messages that wait for the bus, the number of consecutive failed starts",
		},
		{"/usr/share/tegracast/schema.json", "JSON Schema of the configuration, for editors"},
	}
)

// Program writes tegracast(1).
func Program(w io.Writer, b Build, commands []Command) error {
	r := &roff{}
	r.head("tegracast", 1, b)
	r.section("Name")
	r.WriteString("tegracast \\- streams an FPGA camera on PCI Express as RTP\n")
	r.section("Synopsis")
	r.WriteString(".B tegracast\n.I COMMAND\n[\\fIOPTIONS\\fR]\n")
	r.section("Description")
	r.paragraphs("Frames of an FPGA camera arrive by DMA in memory that CUDA sees, are processed in place, and leave as RTP, in recordings, or by UCX; " +
		"results and health also by NATS or MQTT. " +
		"Without an FPGA a model of it streams.\n\nThe commands are:")
	for _, c := range commands {
		r.item(c.Name, "", c.About)
	}
	r.section("Commands")
	for _, c := range commands {
		r.command(c)
	}
	r.section("Configuration")
	r.WriteString(".BR tegracast.yaml (5)\nhas the keys of the configuration of serve.\n")
	r.section("Exit status")
	r.pairs(Statuses)
	r.section("Signals")
	r.pairs(Signals)
	r.section("Files")
	r.pairs(Files)
	r.section("Examples")
	for _, e := range Examples {
		r.item(e.Line, "", e.Does)
	}
	r.section("See also")
	r.WriteString(".BR tegracast.yaml (5),\n.BR systemctl (1),\n.BR journalctl (1)\n")
	_, err := io.WriteString(w, r.String())
	return err
}

func (r *roff) pairs(list []Pair) {
	for _, p := range list {
		r.item(p.Term, "", p.Text)
	}
}

// command writes the part about one command: the usage in bold, then the text of its help.
func (r *roff) command(c Command) {
	r.subsection("tegracast " + c.Name)
	usage, text, _ := strings.Cut(c.Help, "\n\n")
	usage = strings.ReplaceAll("\n"+strings.TrimPrefix(usage, "Usage: "), "\n       ", "\n")
	r.lines(strings.TrimPrefix(usage, "\n"))
	r.paragraphs(text)
	for _, x := range c.Flags {
		value, does := pflag.UnquoteUsage(x)
		r.item(OptionName(x), value, does+DefaultText(x))
	}
}

// DefaultText returns the words for an option's default value in a help text. It returns "" if the default is empty,
// false, or the working folder.
func DefaultText(x *pflag.Flag) string {
	if slices.Contains([]string{"", "false", "[]", "."}, x.DefValue) {
		return ""
	}
	return fmt.Sprintf(" (default %s)", x.DefValue)
}
