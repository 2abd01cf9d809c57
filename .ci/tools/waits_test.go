// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// service is the package whose dependencies run in the service.
const service = "cmd/tegracast/appliance"

// lookups lists functions of package net that resolve names without a context.
var lookups = map[string]bool{
	"LookupAddr": true, "LookupCNAME": true, "LookupHost": true, "LookupIP": true, "LookupMX": true, "LookupNS": true, "LookupPort": true,
	"LookupSRV": true, "LookupTXT": true, "ResolveIPAddr": true, "ResolveTCPAddr": true, "ResolveUDPAddr": true, "Dial": true, "DialTimeout": true,
}

// TestWaits checks that code in the service can always stop waiting. Look-ups of names have a context. A receive from a
// channel, or a range over one, is a case of a select that also has a context, a timer or a default, or a comment on its
// line gives the reason why it ends: "// ends: …".
func TestWaits(t *testing.T) {
	const arch = "arm64"
	runs := needed(t, arch, service)
	for _, p := range load(t, arch) {
		for _, f := range p.Syntax {
			for _, at := range waits(p, f) {
				if runs[p.PkgPath] {
					t.Errorf("%s: %s", p.Fset.Position(at.pos), at.what)
				}
			}
		}
	}
}

// A wait is a wait without a way out.
type wait struct {
	pos  token.Pos
	what string
}

// waits returns the waits in a file.
func waits(p *packages.Package, f *ast.File) (list []wait) {
	reasons, out := reasonLines(p.Fset, f), map[ast.Node]bool{} // receives with a way out
	report := func(n ast.Node, what string) {
		if !reasons[p.Fset.Position(n.Pos()).Line] {
			list = append(list, wait{n.Pos(), what})
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectStmt:
			ends := hasWayOut(p, n)
			for _, c := range n.Body.List {
				if r := received(c.(*ast.CommClause).Comm); r != nil {
					out[r] = true
				}
			}
			if !ends {
				report(n, "a select without a context, a timer or a default")
			}
		case *ast.RangeStmt:
			if _, is := p.TypesInfo.TypeOf(n.X).Underlying().(*types.Chan); is {
				report(n, "a range over a channel")
			}
		case *ast.UnaryExpr:
			if n.Op == token.ARROW && !out[n] && !bounded(p, n.X) {
				report(n, "a receive outside of a select")
			}
		case *ast.CallExpr:
			if s, is := n.Fun.(*ast.SelectorExpr); is {
				if o, is := p.TypesInfo.Uses[s.Sel].(*types.Func); is && o.Pkg() != nil && o.Pkg().Path() == "net" && lookups[o.Name()] &&
					o.Signature().Recv() == nil {
					report(n, "a look-up without a context: net."+o.Name())
				}
			}
		}
		return true
	})
	return list
}

// hasWayOut reports whether a select has a default, or a case for a context or a timer.
func hasWayOut(p *packages.Package, s *ast.SelectStmt) bool {
	for _, c := range s.Body.List {
		comm := c.(*ast.CommClause).Comm
		if r := received(comm); comm == nil || r != nil && bounded(p, r.X) {
			return true
		}
	}
	return false
}

// received returns what a case receives, or nil.
func received(s ast.Stmt) *ast.UnaryExpr {
	var x ast.Expr
	switch s := s.(type) {
	case *ast.ExprStmt:
		x = s.X
	case *ast.AssignStmt:
		x = s.Rhs[0]
	}
	r, _ := ast.Unparen(x).(*ast.UnaryExpr)
	return r
}

// bounded reports whether a channel belongs to a timer or a context.
func bounded(p *packages.Package, channel ast.Expr) bool {
	c, is := p.TypesInfo.TypeOf(channel).Underlying().(*types.Chan)
	if is && c.Elem().String() == "time.Time" {
		return true
	}
	call, is := channel.(*ast.CallExpr)
	if !is {
		return false
	}
	s, is := call.Fun.(*ast.SelectorExpr)
	return is && s.Sel.Name == "Done" && types.TypeString(p.TypesInfo.TypeOf(s.X), nil) == "context.Context"
}

// reasonLines returns the lines with a comment that gives a reason why a wait ends, and the lines after such a comment
// that stands alone.
func reasonLines(set *token.FileSet, f *ast.File) map[int]bool {
	lines := map[int]bool{}
	for _, g := range f.Comments {
		for _, c := range g.List {
			if strings.Contains(c.Text, "// ends: ") {
				line := set.Position(c.Pos()).Line
				lines[line] = true
			}
		}
	}
	return lines
}
