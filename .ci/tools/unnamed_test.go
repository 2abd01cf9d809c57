// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"fmt"
	"go/ast"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// filesOf returns the Go files of packages, relative to the main module.
func filesOf(t *testing.T, all []*packages.Package) map[string]bool {
	t.Helper()
	files := map[string]bool{}
	for _, p := range all {
		for _, f := range p.GoFiles {
			files[relative(t, f)] = true
		}
	}
	return files
}

func relative(t *testing.T, file string) string {
	t.Helper()
	file, err := filepath.Rel(root(t), file)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// unnamed returns the exported functions and methods that are named only by packages for tests, with their places.
func unnamed(t *testing.T, all []*packages.Package) map[string]string {
	t.Helper()
	named := map[types.Object]bool{}
	for _, p := range all {
		if !forTests(p.PkgPath) {
			for _, o := range p.TypesInfo.Uses {
				if f, ok := o.(*types.Func); ok {
					o = f.Origin()
				}
				named[o] = true
			}
		}
	}
	known, found := interfaces(all), map[string]string{}
	for _, p := range all {
		if forTests(p.PkgPath) || p.Name == "main" {
			continue
		}
		for _, o := range p.TypesInfo.Defs {
			f, ok := o.(*types.Func)
			if !ok || !f.Exported() || named[f] || implements(f, known) {
				continue
			}
			at := p.Fset.Position(f.Pos())
			found[nameOf(f)] = fmt.Sprintf("%s:%d", relative(t, at.Filename), at.Line)
		}
	}
	return found
}

// nameOf names a function as deadcode does, after its package's folder.
func nameOf(f *types.Func) string {
	name := strings.TrimPrefix(f.Pkg().Path(), module) + "."
	if n := receiver(f); n != nil {
		name += n.Obj().Name() + "."
	}
	return name + f.Name()
}

// receiver returns the type that a method belongs to, or nil.
func receiver(f *types.Func) *types.Named {
	r := f.Signature().Recv()
	if r == nil {
		return nil
	}
	t := types.Unalias(r.Type())
	if p, ok := t.(*types.Pointer); ok {
		t = types.Unalias(p.Elem())
	}
	n, _ := t.(*types.Named)
	return n
}

// interfaces returns the interfaces that the packages declare and mention, and those of all packages that they import.
func interfaces(all []*packages.Package) []*types.Interface {
	found := []*types.Interface{types.Universe.Lookup("error").Type().Underlying().(*types.Interface)}
	seen := map[*types.Package]bool{}
	var visit func(p *types.Package)
	visit = func(p *types.Package) {
		if seen[p] {
			return
		}
		seen[p] = true
		for _, name := range p.Scope().Names() {
			if o, ok := p.Scope().Lookup(name).(*types.TypeName); ok && types.IsInterface(o.Type()) {
				found = append(found, o.Type().Underlying().(*types.Interface))
			}
		}
		for _, i := range p.Imports() {
			visit(i)
		}
	}
	for _, p := range all {
		visit(p.Types)
		for e, v := range p.TypesInfo.Types {
			if _, ok := e.(*ast.InterfaceType); ok {
				found = append(found, v.Type.Underlying().(*types.Interface))
			}
		}
	}
	return found
}

// implements reports whether a function is a method of an interface, or one by which its type implements an interface.
// The methods of errors that package errors looks for are in no named interface. An unexported type has exported methods
// only for interfaces.
func implements(f *types.Func, known []*types.Interface) bool {
	if f.Signature().Recv() == nil {
		return false
	}
	n := receiver(f)
	if n == nil || types.IsInterface(n) || !n.Obj().Exported() || slices.Contains([]string{"Unwrap", "Is", "As"}, f.Name()) {
		return true
	}
	return slices.ContainsFunc(known, func(i *types.Interface) bool {
		for m := range i.Methods() {
			if m.Name() == f.Name() {
				return types.Implements(types.NewPointer(n), i)
			}
		}
		return false
	})
}
