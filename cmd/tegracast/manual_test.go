// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"strings"
	"testing"
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
	for _, shell := range []string{"zsh", "fish"} {
		if status, out, _ := runs(t, "completion", shell); status != 0 || !strings.Contains(out, "sdp-dir") || !strings.Contains(out, "schema") {
			t.Errorf("%s: status %d\n%s", shell, status, out)
		}
	}
	if status, _, _ := runs(t, "completion", "csh"); status != exitUsage {
		t.Errorf("status %d for a shell that is not known", status)
	}
}
