// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
)

// TestSchemaInEditors checks that ajv accepts the schema in its strict mode, that the language server of editors shows
// its descriptions, and that both find the same files valid and invalid.
func TestSchemaInEditors(t *testing.T) {
	const script = "testdata/schema/check.mjs"
	if _, err := os.Stat("testdata/schema/node_modules/ajv"); err != nil {
		t.Skipf("NEEDS ajv and yaml-language-server: %v: make setup-test installs them", err)
	}
	_, schema, _ := runs(t, "config", "schema")
	_, text, _ := runs(t, "config", "default")
	wrong := map[string]bool{}
	schemaFile := programtest.Write(t, "schema.json", schema)
	if line := string(modeline(schemaFile)); line != "# yaml-language-server: $schema="+schemaFile+"\n" {
		t.Errorf("the default configuration would say of the schema: %q", line)
	}
	if line := modeline(schemaFile + ".none"); len(line) > 0 {
		t.Errorf("the default configuration would name a schema that is not there: %q", line)
	}
	args := []string{script, schemaFile}
	for _, c := range []struct {
		from, to string
		wrong    bool
	}{
		{"", "", false},
		{"payload: raw", "payload: raw\n      mtu: auto", false},
		{"payload: raw", "payload: raw\n      mtu: 9000", false},
		{"payload: raw", "payload: raw\n      mtu: 90", true},
		{"payload: raw", "payload: raw\n      mtv: 9000", true},
		{"payload: raw", "payload: rew", true},
		{"rate: 30 #", "rate: 30000/1001 #", false},
		{"rate: 30 #", "rate: often #", true},
		{"sources:", "cameras:", true},
	} {
		if !strings.Contains(text, c.from) {
			t.Fatalf("the default configuration has no %q", c.from)
		}
		file := programtest.Write(t, "c.yaml", strings.Replace(text, c.from, c.to, 1))
		args, wrong[file] = append(args, file), c.wrong
	}
	out, err := exec.CommandContext(t.Context(), "node", args...).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var found map[string]struct {
		Ajv, Editor []string
		Hover       string
	}
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for file, is := range wrong {
		f := found[file]
		if len(f.Ajv) > 0 != is || len(f.Editor) > 0 != is || f.Hover == "" {
			text, _ := os.ReadFile(file)
			t.Errorf("wrong %v: ajv %q, the editor %q, hover %q:\n%s", is, f.Ajv, f.Editor, f.Hover, text)
		}
	}
}

// TestAlertRules checks that Prometheus's own tool accepts the alert rules of docs/monitoring.
func TestAlertRules(t *testing.T) {
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("NEEDS promtool (Debian's prometheus): make setup-test installs it")
	}
	out, err := exec.CommandContext(t.Context(), "promtool", "check", "rules", "--lint=all", "--lint-fatal", "../../docs/monitoring/alerts.yaml").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "SUCCESS") {
		t.Errorf("%v: %s", err, out)
	}
}
