// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
)

// TestReferences checks that the reference pages match their sources. TEGRACAST_UPDATE=1 writes them.
func TestReferences(t *testing.T) {
	for page, make := range map[string]func(*testing.T, *bytes.Buffer){
		"configuration.md": configurationPage, "commands.md": commandsPage, "metrics.md": metricsPage,
		"json.md": jsonPage,
	} {
		var b bytes.Buffer
		b.WriteString("<!-- SPDX-License-Identifier: Apache-2.0 -->\n")
		make(t, &b)
		path := filepath.Join("..", "..", "docs", page)
		if os.Getenv("TEGRACAST_UPDATE") != "" {
			if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if text, err := os.ReadFile(path); err != nil || !bytes.Equal(text, b.Bytes()) {
			t.Errorf("docs/%s is not what its sources say (%v): TEGRACAST_UPDATE=1 go test -run TestReferences ./cmd/tegracast", page, err)
		}
	}
}

const generated = "It is written from its sources by a test (`TestReferences`).\n"

// cell escapes a text for a table.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;").Replace(s)
}

func configurationPage(t *testing.T, b *bytes.Buffer) {
	var schema bytes.Buffer
	if err := config.WriteSchema(&schema); err != nil {
		t.Fatal(err)
	}
	list, err := terminal.Sections(schema.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(b, "# Configuration reference\n\nThe keys of `tegracast.yaml`, as `man tegracast.yaml` has them, too. %s\n%s\n\n"+
		"What they do together is in [operations.md](operations.md), and an example with comments is what `tegracast config default` prints. "+
		"Editors that know YAML take the schema (`tegracast config schema`).\n", generated, terminal.Rules)
	for _, s := range list {
		fmt.Fprintf(b, "\n## %s\n\n| key | value | what it does |\n|---|---|---|\n", cmp.Or(s.Path, "Top level"))
		for _, k := range s.Keys {
			fmt.Fprintf(b, "| `%s` | %s | %s |\n", k.Name, cell(k.Kind), cell(k.Text))
		}
	}
}

func commandsPage(t *testing.T, b *bytes.Buffer) {
	fmt.Fprintf(b, "# Command reference\n\nWhat `tegracast help COMMAND` prints, and `man tegracast`. %s", generated)
	for _, p := range pages(t.Context()) {
		fmt.Fprintf(b, "\n## tegracast %s\n\n```\n%s```\n", p.Name, p.Help)
		if len(p.Flags) == 0 {
			continue
		}
		b.WriteString("\n| option | what it does |\n|---|---|\n")
		for _, f := range p.Flags {
			value, does := pflag.UnquoteUsage(f)
			fmt.Fprintf(b, "| `%s` | %s |\n", cell(strings.TrimSpace(terminal.OptionName(f)+" "+value)), cell(does+terminal.DefaultText(f)))
		}
	}
	for _, list := range []struct {
		name  string
		pairs []terminal.Pair
	}{{"Exit status", terminal.Statuses}, {"Signals", terminal.Signals}, {"Files", terminal.Files}} {
		fmt.Fprintf(b, "\n## %s\n\n| | |\n|---|---|\n", list.name)
		for _, p := range list.pairs {
			fmt.Fprintf(b, "| `%s` | %s |\n", p.Term, cell(p.Text))
		}
	}
}

// A metric is a metric with its description.
type metric struct {
	name, help string
	labels     []string
}

func metricsPage(t *testing.T, b *bytes.Buffer) {
	fmt.Fprintf(b, "# Metrics reference\n\nThe metrics that `http://127.0.0.1:8080/metrics` exposes to Prometheus, besides the metrics of Go "+
		"and of the process, and `tegracast_build_info` with the version. %s"+
		"Names that end with `_total` are counters, `_seconds` of stages and outputs histograms, the others gauges. "+
		"A metric appears only if the configuration has the part that it describes. "+
		"A dashboard and alert rules are in [monitoring](monitoring).\n\n| metric | labels | what it tells |\n|---|---|---|\n", generated)
	all := metricsIn(t)
	if len(all) < 50 {
		t.Errorf("only %d metrics are found", len(all))
	}
	for _, m := range all {
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", m.name, strings.Join(m.labels, ", "), cell(m.help))
	}
}

// metricsIn returns the metrics that the sources describe: calls with a name, a text that ends with a full stop, and
// labels, in a file that forms their names with a single prefix.
func metricsIn(t *testing.T) (all []metric) {
	t.Helper()
	for _, dir := range []string{"web", "appliance", "streams", "lines", "telemetry", "."} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(dir, err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, metricsOf(file)...)
		}
	}
	slices.SortFunc(all, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	return slices.CompactFunc(all, func(a, b metric) bool { return a.name == b.name })
}

func metricsOf(file *ast.File) (list []metric) {
	prefix, common := "", []string(nil)
	ast.Inspect(file, func(n ast.Node) bool { // prometheus.NewDesc("tegracast_rtp_"+name, help, []string{"output"}, nil)
		if c, is := n.(*ast.CallExpr); is && called(c) == "NewDesc" {
			prefix, common = texts(c.Args[0])[0], texts(c.Args[2])
		}
		return true
	})
	ast.Inspect(file, func(n ast.Node) bool {
		c, is := n.(*ast.CallExpr)
		switch {
		case !is || prefix == "" || len(c.Args) < 2:
		case called(c) == "NewDesc":
		default:
			name, help := texts(c.Args[0]), texts(c.Args[1])
			if len(name) != 1 || len(help) == 0 || !strings.HasSuffix(help[len(help)-1], ".") {
				return true
			}
			m := metric{name: prefix + name[0], help: strings.Join(help, ""), labels: slices.Clone(common)}
			for _, a := range c.Args[2:] {
				m.labels = append(m.labels, texts(a)...)
			}
			list = append(list, m)
		}
		return true
	})
	return list
}

// called returns the name of the called function.
func called(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.SelectorExpr:
		return f.Sel.Name
	case *ast.Ident:
		return f.Name
	}
	return ""
}

// texts returns the texts in an expression that is a text, a sum with texts, or a list.
func texts(e ast.Expr) (list []string) {
	ast.Inspect(e, func(n ast.Node) bool {
		if l, is := n.(*ast.BasicLit); is && l.Kind == token.STRING {
			text, _ := strconv.Unquote(l.Value)
			list = append(list, text)
		}
		return true
	})
	return list
}
