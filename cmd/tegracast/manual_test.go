// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
)

// typeset checks that groff and mandoc accept a page without warnings, and returns the page as shown on a terminal.
func typeset(t *testing.T, page string) string {
	t.Helper()
	lint := exec.CommandContext(t.Context(), "mandoc", "-Tlint")
	lint.Stdin = strings.NewReader(page)
	if out, err := lint.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("mandoc: %v\n%s", err, out)
	}
	c := exec.CommandContext(t.Context(), "groff", "-man", "-ww", "-Tutf8", "-P-cbou")
	c.Stdin = strings.NewReader(page)
	var said strings.Builder
	c.Stderr = &said
	text, err := c.Output()
	if err != nil || said.Len() > 0 {
		t.Errorf("groff (package groff-base): %v\n%s", err, &said)
	}
	return strings.ReplaceAll(string(text), "‐", "-")
}

// TestManual checks that tegracast(1) names every option of every command, and that its examples use existing options.
func TestManual(t *testing.T) {
	if status, page, stderr := runs(t, "man"); status != 0 || !strings.HasPrefix(page, ".TH TEGRACAST 1 ") {
		t.Errorf("status %d: %s, %.80q", status, stderr, page)
	}
	var b strings.Builder
	list := pages(t.Context())
	if err := terminal.Program(&b, terminal.Build{Version: "1.0.0", Day: "2026-01-02"}, list); err != nil {
		t.Fatal(err)
	}
	text := typeset(t, b.String())
	options := map[string][]string{}
	for _, p := range list {
		if p.Help == "" {
			t.Errorf("%s says nothing of itself", p.Name)
		}
		options[p.Name] = []string{}
		for _, x := range p.Flags {
			options[p.Name] = append(options[p.Name], "--"+x.Name)
			if !strings.Contains(text, "--"+x.Name) {
				t.Errorf("the page has nothing of %s --%s", p.Name, x.Name)
			}
		}
	}
	for _, example := range terminal.Examples {
		words := strings.Fields(example.Line)
		known := options[strings.Join(words[1:min(3, len(words))], " ")]
		if known == nil {
			known = options[words[1]]
		}
		for _, w := range words {
			if strings.HasPrefix(w, "--") && !slices.Contains(known, w) {
				t.Errorf("%s: there is no %s", example.Line, w)
			}
		}
		if known == nil {
			t.Errorf("%s: there is no such command", example.Line)
		}
	}
}

// TestManualOfConfiguration checks that tegracast.yaml(5) has every key of the schema.
func TestManualOfConfiguration(t *testing.T) {
	var schema, b bytes.Buffer
	if err := config.WriteSchema(&schema); err != nil {
		t.Fatal(err)
	}
	if err := terminal.Configuration(&b, terminal.Build{Version: "1.0.0", Day: "2026-01-02"}, schema.Bytes(), string(config.Default())); err != nil {
		t.Fatal(err)
	}
	typeset(t, b.String())
	var root struct {
		Properties  map[string]any `json:"properties"`
		Definitions map[string]struct {
			Properties map[string]any `json:"properties"`
		} `json:"$defs"`
	}
	if err := json.Unmarshal(schema.Bytes(), &root); err != nil {
		t.Fatal(err)
	}
	keys := slices.Collect(maps.Keys(root.Properties))
	for _, d := range root.Definitions {
		keys = slices.AppendSeq(keys, maps.Keys(d.Properties))
	}
	for _, key := range keys {
		if !strings.Contains(b.String(), ".TP\n\\fB"+key+"\\fR ") {
			t.Errorf("the page has nothing of %s", key)
		}
	}
	if len(keys) < 140 {
		t.Errorf("only %d keys", len(keys))
	}
	if status, page, stderr := runs(t, "man", "tegracast.yaml"); status != 0 || !strings.HasPrefix(page, ".TH TEGRACAST.YAML 5 ") {
		t.Errorf("status %d: %s, %.80q", status, stderr, page)
	}
	if status, _, stderr := runs(t, "man", "tegracast.conf"); status != exitUsage || !strings.Contains(stderr, "use tegracast or tegracast.yaml") {
		t.Errorf("status %d: %s", status, stderr)
	}
}

// TestCompletion lets bash complete commands, options and words, as for a user.
func TestCompletion(t *testing.T) {
	status, script, stderr := runs(t, "completion", "bash")
	if status != 0 {
		t.Fatalf("status %d: %s", status, stderr)
	}
	for typed, want := range map[string]string{
		"tegracast lo":                       "loopback",
		"tegracast loopback --dev":           "--device",
		"tegracast probe --s":                "--sdp --save",
		"tegracast config d":                 "default diff",
		"tegracast config check --":          "--help --json",
		"tegracast config check c":           "", // bash itself completes files
		"tegracast help ver":                 "version",
		"tegracast help config t":            "tls",
		"tegracast record export --o":        "--output",
		"tegracast record export --format m": "mcap mp4 mkv",
		"tegracast completion z":             "zsh",
		"tegracast loopback --memory c":      "cuda",
		"tegracast serve --fault F1":         "F1: F10: F11: F12:",
		"tegracast serve --config c":         "", // bash itself completes files
		"tegracast nothing --":               "",
	} {
		words := strings.Fields(typed)
		line := script + "COMP_WORDS=(" + typed + "); COMP_CWORD=" + string(rune('0'+len(words)-1)) + "; _tegracast; echo \"${COMPREPLY[*]}\""
		out, err := exec.CommandContext(t.Context(), "bash", "-c", line).CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("%s: %q %v, want %q", typed, out, err, want)
		}
	}
	if status, _, _ := runs(t, "completion", "csh"); status != exitUsage {
		t.Errorf("status %d for a shell that is not known", status)
	}
}

// TestFishCompletes lets fish complete, with descriptions.
func TestFishCompletes(t *testing.T) {
	_, script, _ := runs(t, "completion", "fish")
	file := programtest.Write(t, "tegracast.fish", script)
	for typed, want := range map[string]string{
		"lo": "loopback\tcopy memory", "probe --sd": "--sdp\tread the description", "config di": "diff", "help fl": "fleet", "help config ch": "check",
		"record export --format y": "y4m", "config check --j": "--json\tprint the mistakes", "serve --log-f": "--log-format\tlog as FORMAT",
		"loopback --direction c": "c2h", "serve --log-level d": "debug",
	} {
		cmd := exec.CommandContext(t.Context(), "fish", "--no-config", "-c", "source $argv[1]; complete -C $argv[2]", file, "tegracast "+typed)
		cmd.Env = append(cmd.Environ(), "HOME="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), want) || strings.Count(string(out), "\n") != 1 {
			t.Errorf("%s: %q, %v, want %q (make setup-test installs fish)", typed, out, err, want)
		}
	}
}

// zshTypes is a script that types its second argument and a tab into an interactive zsh, with completions in the folder
// that its first argument names, and prints the resulting line.
const zshTypes = `zmodload zsh/zpty
zpty typed 'TERM=dumb zsh -f -i'
zpty -w typed "PS1=; unsetopt zle_bracketed_paste; fpath=($1 \$fpath); autoload -Uz compinit; compinit -u -d $1/dump; print READ''Y"
zpty -r -m typed answer $'*READY\r\n*'
zpty -w -n typed "$2"$'\t; print E\'\'ND\n'
zpty -r -m typed answer $'*END\r\n*'
print -r -- $answer
zpty -d typed
`

// TestZshCompletes lets an interactive zsh complete.
func TestZshCompletes(t *testing.T) {
	_, script, _ := runs(t, "completion", "zsh")
	dir := filepath.Dir(programtest.Write(t, "_tegracast", script))
	for typed, want := range map[string]string{
		"tegracast lo": "tegracast loopback", "tegracast probe --sd": "--sdp", "tegracast config sch": "config schema",
		"tegracast serve --fault x --fau": "--fault x --fault", "tegracast serve --log-f": "--log-format",
		"tegracast loopback --memory cu": "--memory cuda", "tegracast config di": "config diff", "tegracast config check --j": "--json",
		"tegracast help fl": "help fleet", "tegracast help config ch": "help config check", "tegracast record export --format y": "--format y4m",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, "zsh", "-f", "-c", zshTypes, "zsh", dir, typed)
		cmd.Env = append(cmd.Environ(), "HOME="+dir)
		out, err := cmd.CombinedOutput()
		cancel()
		if err != nil || !strings.Contains(string(out), want+" ") {
			t.Errorf("%s: %q, %v, want %q (make setup-test installs zsh)", typed, out, err, want)
		}
	}
}
