// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// allowedFields lists fields of configurations that no program sets. Each entry gives the reason, as in allowed.
var allowedFields = map[string]string{
	"capture.FPGAConfig.GiveUp": "tests: an FPGA that is lost for good",
	"capture.V4L2Config.GiveUp": "tests: a camera that is lost for good",

	"cudahost/cufile.Config.Access":   "tests: each way of access",
	"cudahost/cufile.Config.Calls":    "tests: a kernel without io_uring",
	"cudahost/cufile.Config.Settings": "a structure of the document",

	"fpga/model.Config.Clock":            "tests: virtual time",
	"fpga/model.Config.ClockPPM":         "tests: an oscillator that is off",
	"fpga/model.Config.Designs":          "tests: a design that computes",
	"fpga/model.Config.RAM":              "tests: a small memory",
	"fpga/model.FaultPlan.At":            "tests: a fault at a known place",
	"fpga/model.SensorConfig.Jitter":     "tests: a sensor whose frames are not regular",
	"fpga/model.SensorConfig.JitterSeed": "tests: a sensor whose frames are not regular",
	"fpga/model.SinkConfig.Paused":       "tests: an FPGA that takes nothing",
	"fpga/model.SinkConfig.Rate":         "tests: an FPGA that takes its time",

	"fpga/vfiouser/endpoint.Config.INTx": "tests: a card without messages",
	"fpga/xdma.Config.Watchdog":          "tests: no wake-up but by interrupts",

	"pipeline.GraphConfig.Grace":                "tests: a slow machine",
	"pipeline/isp/cuda.Options.Transfer":        "tests: the way of the other kind of GPU",
	"pipeline/kernel.Options.Transfer":          "tests: the way of the other kind of GPU",
	"pipeline/rtp/receive.Config.Buffer":        "tests: a buffer that is too small",
	"pipeline/share.ClientConfig.Groups":        "programs of users: they ask for the numbers of groups",
	"pipeline/ucx.Config.Library":               "tests: a library that is none",
	"pipeline/ucx/frames.ReceiverConfig.Memory": "programs of users: frames in memory of theirs",

	"tegra/tegrasim.Config.Attr":        "tests: memory with another attribute",
	"tegra/tegrasim.Config.Contiguous":  "tests: memory in one segment",
	"tegra/tegrasim.Config.MaxSegment":  "tests: memory in small segments",
	"tegra/tegrasim.Config.MeanSegment": "tests: memory in small segments",
}

// configuration matches the names of types whose fields their users set.
var configuration = regexp.MustCompile(`(Config|Options|Plan)$`)

// TestEveryFieldIsSet fails on an exported field of a configuration that only tests set, and on an exception that is no
// longer one. A field is set in a composite literal, or by an assignment or an address in another package: assignments in
// its own package are defaults. Fields with a tag are set by a file.
func TestEveryFieldIsSet(t *testing.T) {
	unset := map[string]string{}
	for i, arch := range []string{"amd64", "arm64"} {
		found := unsetIn(t, load(t, arch))
		if i == 0 {
			unset = found
		}
		maps.DeleteFunc(unset, func(name, _ string) bool { return found[name] == "" })
	}
	for _, name := range slices.Sorted(maps.Keys(unset)) {
		if allowedFields[name] == "" {
			t.Errorf("%s: no program sets %s: delete it with its tests, or say in allowedFields who needs it", unset[name], name)
		}
	}
	for name := range allowedFields {
		if unset[name] == "" {
			t.Errorf("%s is set, or has gone: delete it from allowedFields", name)
		}
	}
}

// unsetIn returns the fields that no package sets but those for tests, with their places.
func unsetIn(t *testing.T, all []*packages.Package) map[string]string {
	t.Helper()
	set := map[types.Object]bool{}
	for _, p := range all {
		if forTests(p.PkgPath) {
			continue
		}
		for _, f := range p.Syntax {
			ast.Inspect(f, func(n ast.Node) bool {
				markSet(p, n, set)
				return true
			})
		}
	}
	found := map[string]string{}
	for _, p := range all {
		if forTests(p.PkgPath) || p.Name == "main" {
			continue
		}
		for _, name := range p.Types.Scope().Names() {
			s, ok := p.Types.Scope().Lookup(name).Type().Underlying().(*types.Struct)
			if !ok || !configuration.MatchString(name) || !token.IsExported(name) {
				continue
			}
			for i := range s.NumFields() {
				f := s.Field(i)
				if f.Exported() && !f.Embedded() && s.Tag(i) == "" && !set[f] {
					at := p.Fset.Position(f.Pos())
					found[strings.TrimPrefix(p.PkgPath, module)+"."+name+"."+f.Name()] = fmt.Sprintf("%s:%d", relative(t, at.Filename), at.Line)
				}
			}
		}
	}
	return found
}

// markSet adds the fields that a node sets.
func markSet(p *packages.Package, n ast.Node, set map[types.Object]bool) {
	assigned := func(e ast.Expr) {
		for {
			switch x := e.(type) {
			case *ast.IndexExpr:
				e = x.X
				continue
			case *ast.SelectorExpr:
				if f := p.TypesInfo.Uses[x.Sel]; f != nil && f.Pkg() != p.Types {
					set[f] = true
				}
				e = x.X // what contains the field is set with it
				continue
			}
			return
		}
	}
	switch n := n.(type) {
	case *ast.CompositeLit:
		s, ok := p.TypesInfo.TypeOf(n).Underlying().(*types.Struct)
		for i, e := range n.Elts {
			if pair, keyed := e.(*ast.KeyValueExpr); !ok {
				return
			} else if !keyed {
				set[s.Field(i)] = true
			} else if key, ok := pair.Key.(*ast.Ident); ok {
				set[p.TypesInfo.Uses[key]] = true
			}
		}
	case *ast.AssignStmt:
		for _, e := range n.Lhs {
			assigned(e)
		}
	case *ast.UnaryExpr:
		if n.Op == token.AND {
			assigned(n.X)
		}
	case *ast.CallExpr: // a method may set what it is called on
		if f, ok := n.Fun.(*ast.SelectorExpr); ok && p.TypesInfo.Selections[f] != nil {
			assigned(f.X)
		}
	}
}
