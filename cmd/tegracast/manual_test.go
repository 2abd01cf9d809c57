// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
)

// TestManual: the manual page names every option of every command, and groff has nothing to say against it.
func TestManual(t *testing.T) {
	status, page, stderr := runs(t, "man")
	if status != 0 {
		t.Fatalf("status %d: %s", status, stderr)
	}
	c := exec.CommandContext(t.Context(), "groff", "-man", "-ww", "-Tutf8", "-P-cbou")
	c.Stdin = strings.NewReader(page)
	var said strings.Builder
	c.Stderr = &said
	text, err := c.Output()
	if err != nil || said.Len() > 0 {
		t.Errorf("groff (package groff-base): %v\n%s", err, &said)
	}
	for _, p := range pages(t.Context()) {
		if p.head == "" {
			t.Errorf("%s says nothing of itself", p.name)
		}
		for _, x := range p.flags {
			if !strings.Contains(strings.ReplaceAll(string(text), "‐", "-"), "--"+x.Name) {
				t.Errorf("the page has nothing of %s --%s", p.name, x.Name)
			}
		}
	}
}

// TestCompletion has bash complete commands, options and words, as it is asked for by a person.
func TestCompletion(t *testing.T) {
	status, script, stderr := runs(t, "completion", "bash")
	if status != 0 {
		t.Fatalf("status %d: %s", status, stderr)
	}
	for typed, want := range map[string]string{
		"tegracast lo":             "loopback",
		"tegracast loopback --dev": "--device",
		"tegracast probe --s":      "--sdp --save",
		"tegracast config ch":      "check",
		"tegracast completion z":   "zsh",
		"tegracast nothing --":     "",
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

// TestFishCompletes has fish complete, with descriptions.
func TestFishCompletes(t *testing.T) {
	_, script, _ := runs(t, "completion", "fish")
	file := programtest.Write(t, "tegracast.fish", script)
	for typed, want := range map[string]string{
		"lo": "loopback\tcopy memory", "probe --sd": "--sdp\tread the description", "config ch": "check", "serve --log-f": "--log-format\tlog as FORMAT",
	} {
		cmd := exec.CommandContext(t.Context(), "fish", "--no-config", "-c", "source $argv[1]; complete -C $argv[2]", file, "tegracast "+typed)
		cmd.Env = append(cmd.Environ(), "HOME="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), want) || strings.Count(string(out), "\n") != 1 {
			t.Errorf("%s: %q, %v, want %q (make setup installs fish)", typed, out, err, want)
		}
	}
}

// zshTypes is a script that types its second argument and a tab into an interactive zsh, whose completions are in the folder that the
// first one names, and prints what is on its line then.
const zshTypes = `zmodload zsh/zpty
zpty typed 'TERM=dumb zsh -f -i'
zpty -w typed "PS1=; unsetopt zle_bracketed_paste; fpath=($1 \$fpath); autoload -Uz compinit; compinit -u -d $1/dump; print READ''Y"
zpty -r -m typed answer $'*READY\r\n*'
zpty -w -n typed "$2"$'\t; print E\'\'ND\n'
zpty -r -m typed answer $'*END\r\n*'
print -r -- $answer
zpty -d typed
`

// TestZshCompletes has an interactive zsh complete.
func TestZshCompletes(t *testing.T) {
	_, script, _ := runs(t, "completion", "zsh")
	dir := filepath.Dir(programtest.Write(t, "_tegracast", script))
	for typed, want := range map[string]string{
		"tegracast lo": "tegracast loopback", "tegracast probe --sd": "--sdp", "tegracast config sch": "config schema",
		"tegracast serve --fault x --fau": "--fault x --fault", "tegracast serve --log-f": "--log-format",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, "zsh", "-f", "-c", zshTypes, "zsh", dir, typed)
		cmd.Env = append(cmd.Environ(), "HOME="+dir)
		out, err := cmd.CombinedOutput()
		cancel()
		if err != nil || !strings.Contains(string(out), want+" ") {
			t.Errorf("%s: %q, %v, want %q (make setup installs zsh)", typed, out, err, want)
		}
	}
}
