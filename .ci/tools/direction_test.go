// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"bytes"
	"cmp"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/packages"
)

// directed lists the packages whose files have an order: earlier files use later ones.
var directed = []string{
	"cmd/tegracast",
	"cmd/tegracast/appliance",
	"cmd/tegracast/config",
	"cmd/tegracast/config/yamlfile",
	"cmd/tegracast/doctor",
	"cmd/tegracast/lines",
	"cmd/tegracast/loopback",
}

// Limits for a directed package, without tests.
const (
	mostAgainst   = 5   // percentage of the references between its files that run against the order
	largestOfMain = 210 // lines of a file of package main
)

// A reference is a use, in one file, of a declaration in another file of the package.
type reference struct{ from, to string }

// TestDirection fails on a package whose files use one another in circles, because such a package has no file to start
// reading with. With -v it prints the share of references against the order in each package, and their files.
func TestDirection(t *testing.T) {
	var patterns []string
	for _, d := range directed {
		patterns = append(patterns, "./"+d)
	}
	for _, p := range load(t, "arm64", patterns...) {
		name := strings.TrimPrefix(p.PkgPath, module)
		count := references(p)
		order := ordered(count)
		all, back := 0, 0
		var pairs []reference
		for r, n := range count {
			all += n
			if slices.Index(order, r.from) > slices.Index(order, r.to) {
				back += n
				pairs = append(pairs, r)
			}
		}
		t.Logf("%-26s %3d files %5d lines %5d references, %3d against the order: %.1f %%",
			name, len(p.GoFiles), linesOf(t, name, p), all, back, 100*float64(back)/float64(max(all, 1)))
		t.Logf("    %s", strings.Join(order, " "))
		slices.SortFunc(pairs, func(a, b reference) int {
			return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a.from+a.to, b.from+b.to))
		})
		for _, r := range pairs {
			t.Logf("    %s uses %s %d times, which uses it %d times", r.from, r.to, count[r], count[reference{r.to, r.from}])
		}
		if 100*back > mostAgainst*all {
			t.Errorf("%s: %d of %d references between its files run against the order, more than %d %% (-v says which): move a function",
				name, back, all, mostAgainst)
		}
	}
}

// references counts the identifiers in each file that another file of the package declares, at package level or as a method.
func references(p *packages.Package) map[reference]int {
	count := map[reference]int{}
	for at, o := range p.TypesInfo.Uses {
		f, isFunc := o.(*types.Func)
		if isFunc {
			o = f.Origin()
		}
		if o.Pkg() != p.Types || o.Parent() != p.Types.Scope() && !isFunc {
			continue
		}
		from, to := p.Fset.Position(at.Pos()).Filename, p.Fset.Position(o.Pos()).Filename
		if from != to {
			count[reference{filepath.Base(from), filepath.Base(to)}]++
		}
	}
	return count
}

// ordered puts the files into an order in which few references run from a file to an earlier one. Finding the minimum is
// hard (the feedback arc set). This takes the file with the greatest excess of uses over being used first, and then moves
// single files while that helps.
func ordered(count map[reference]int) []string {
	surplus := map[string]int{} // number of uses minus number of times used
	for r, n := range count {
		surplus[r.from] += n
		surplus[r.to] -= n
	}
	order := slices.SortedFunc(maps.Keys(surplus), func(a, b string) int {
		return cmp.Or(cmp.Compare(surplus[b], surplus[a]), cmp.Compare(a, b))
	})
	for moved := true; moved; {
		moved = false
		for _, f := range slices.Clone(order) {
			was := slices.Index(order, f)
			order = slices.Delete(order, was, was+1)
			to := place(order, f, count)
			if cost(order, f, to, count) == cost(order, f, was, count) {
				to = was
			}
			order = slices.Insert(order, to, f)
			moved = moved || to != was
		}
	}
	return order
}

// place returns the best place of f among the others.
func place(others []string, f string, count map[reference]int) int {
	best := 0
	for i := range len(others) + 1 {
		if cost(others, f, i, count) < cost(others, f, best, count) {
			best = i
		}
	}
	return best
}

// cost returns how many references of f, and to it, run against the order if it is placed before others[at].
func cost(others []string, f string, at int, count map[reference]int) int {
	n := 0
	for i, o := range others {
		if i < at {
			n += count[reference{f, o}]
		} else {
			n += count[reference{o, f}]
		}
	}
	return n
}

// linesOf counts the lines of a package without tests, and fails on a package or a file that has too many.
func linesOf(t *testing.T, name string, p *packages.Package) int {
	t.Helper()
	sum := 0
	for _, f := range p.GoFiles {
		source, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		n := bytes.Count(source, []byte("\n"))
		if sum += n; p.Name == "main" && n > largestOfMain {
			t.Errorf("%s: %d lines, more than %d: what does the work belongs into a package", relative(t, f), n, largestOfMain)
		}
	}
	return sum
}
