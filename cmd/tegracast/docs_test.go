// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/invopop/jsonschema"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
)

// sources returns the text of all programs, without the tests.
func sources(t *testing.T) string {
	t.Helper()
	root := filepath.Join("..", "..")
	var all strings.Builder
	for _, dir := range []string{"board", "capture", "cmd", "cudahost", "fpga", "pipeline", "tegra"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			all.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

// TestPagesQuoteTheProgram checks that the program has the messages that docs/troubleshooting.md quotes and the words of
// docs/glossary.md.
func TestPagesQuoteTheProgram(t *testing.T) {
	program := sources(t)
	for page, quoted := range map[string]*regexp.Regexp{
		"troubleshooting.md": regexp.MustCompile("(?m)^\\| `([^`]+)` \\|"),
		"glossary.md":        regexp.MustCompile(`(?m)^\| ([a-zA-Z0-9][a-zA-Z0-9 -]*)[,.a-zA-Z0-9 ]* \|`),
	} {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
		if err != nil {
			t.Fatal(err)
		}
		found := quoted.FindAllSubmatch(text, -1)
		for _, m := range found {
			what := string(m[1])
			if what != "word" && !strings.Contains(strings.ToLower(program), strings.ToLower(what)) {
				t.Errorf("%s: the program does not say %q", page, what)
			}
		}
		if len(found) < 15 {
			t.Errorf("%s: only %d are looked at", page, len(found))
		}
	}
}

// documents returns the texts of README and all pages, by name.
func documents(t *testing.T) map[string]string {
	t.Helper()
	root := filepath.Join("..", "..")
	files, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, f := range append(files, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(f)] = string(text)
	}
	return all
}

// TestPagesNameCommands checks that the commands of tegracast in README and the pages exist, with their options.
func TestPagesNameCommands(t *testing.T) {
	options := map[string][]string{}
	for _, p := range pages(t.Context()) {
		options[p.Name] = []string{"--help"}
		for _, f := range p.Flags {
			options[p.Name] = append(options[p.Name], "--"+f.Name)
		}
	}
	line := regexp.MustCompile("(?m)(?:`|^    |^|^[A-Z]*\\$ |sudo |bin/)tegracast ([a-z]+)([^`\n]*)")
	option := regexp.MustCompile(`--[a-z][a-z-]+`)
	found := 0
	for page, text := range documents(t) {
		for _, m := range line.FindAllStringSubmatch(text, -1) {
			subcommand, _, _ := strings.Cut(strings.TrimSpace(m[2]), " ")
			known, is := options[m[1]+" "+subcommand]
			if !is {
				known, is = options[m[1]]
			}
			if !is {
				t.Errorf("%s: there is no command %q: %s", page, m[1], m[0])
			}
			command, _, _ := strings.Cut(strings.ReplaceAll(m[2], "#", " | "), " | ")
			for _, o := range option.FindAllString(command, -1) {
				if !slices.Contains(known, o) {
					t.Errorf("%s: tegracast %s has no option %s: %s", page, m[1], o, m[0])
				}
			}
			found++
		}
	}
	if found < 60 {
		t.Errorf("only %d commands are looked at", found)
	}
}

// TestPagesNameMetrics checks that the metrics in README and the pages exist.
func TestPagesNameMetrics(t *testing.T) {
	all := metricsIn(t)
	found := 0
	for page, text := range documents(t) {
		if page == "metrics.md" {
			continue
		}
		for _, m := range regexp.MustCompile("`(tegracast_[a-z_]+)([`*])").FindAllStringSubmatch(text, -1) {
			if !slices.ContainsFunc(all, func(x metric) bool { return x.name == m[1] || m[2] == "*" && strings.HasPrefix(x.name, m[1]) }) {
				t.Errorf("%s: there is no metric %s", page, m[1])
			}
			found++
		}
	}
	if found < 10 {
		t.Errorf("only %d metrics are looked at", found)
	}
}

// TestPagesConfigure checks that the keys of configurations in the pages are in the schema.
func TestPagesConfigure(t *testing.T) {
	var b bytes.Buffer
	if err := config.WriteSchema(&b); err != nil {
		t.Fatal(err)
	}
	root := &jsonschema.Schema{}
	if err := json.Unmarshal(b.Bytes(), root); err != nil {
		t.Fatal(err)
	}
	found := 0
	for page, text := range documents(t) {
		for _, m := range fence.FindAllStringSubmatch(text, -1) {
			var value map[string]any
			if m[1] != "" && m[1] != "yaml" || yaml.Unmarshal([]byte(m[2]), &value) != nil || len(value) == 0 {
				continue // something else
			}
			for key := range value {
				if _, is := root.Properties.Get(key); !is {
					value = nil // of another program
					break
				}
			}
			for _, unknown := range unknownKeys(root, root, value) {
				t.Errorf("%s: the configuration has no key %s:\n%s", page, unknown, m[2])
			}
			found++
		}
	}
	if found < 15 {
		t.Errorf("only %d configurations are looked at", found)
	}
}

// unknownKeys returns the keys of a value that are not in a schema.
func unknownKeys(root, s *jsonschema.Schema, value any) (list []string) {
	if d, ok := root.Definitions[strings.TrimPrefix(s.Ref, "#/$defs/")]; ok {
		s = d
	}
	switch v := value.(type) {
	case []any:
		for _, x := range v {
			if s.Items != nil {
				list = append(list, unknownKeys(root, s.Items, x)...)
			}
		}
	case map[string]any:
		if s.Properties == nil || s.Properties.Len() == 0 {
			return nil // any key is allowed
		}
		for key, x := range v {
			if p, is := s.Properties.Get(key); is {
				for _, below := range unknownKeys(root, p, x) {
					list = append(list, key+"."+below)
				}
			} else {
				list = append(list, key)
			}
		}
	}
	return list
}
