// SPDX-License-Identifier: Apache-2.0

package onnx

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// An operator identifies an operator, or a function of the model. The domain "" is ONNX's.
type operator struct{ domain, name, overload string }

// ours returns the name of a domain by which this package knows it.
func ours(domain string) string {
	if domain == "ai.onnx" {
		return ""
	}
	return domain
}

// domains are those whose operators ONNX Runtime contains.
var domains = []string{"", "ai.onnx.ml", "com.microsoft"}

// refused lists operators of these domains that load files or libraries, with the reason and the remedy.
var refused = map[operator]string{
	{domain: "com.microsoft", name: "EPContext"}: "it contains, or loads, an engine that was compiled for one machine: use the model that it was made from",
}

// A body holds the nodes of a graph or function, with those of the graphs in its nodes.
type body struct {
	nodes    int
	calls    map[operator]int
	expanded int  // nodes when functions have become their nodes; 0: not counted yet
	entered  bool // it is being counted
}

// function reads a FunctionProto.
func (p *parser) function(f field) error {
	var op operator
	m, err := f.sub("FunctionProto")
	if err != nil {
		return err
	}
	b := &body{calls: map[operator]int{}}
	err = m.each(func(f field) (err error) {
		switch f.number {
		case 1:
			op.name, err = f.text()
		case 7: // node
			err = p.node(f, b, 0)
		case 10:
			op.domain, err = f.text()
		case 11: // attribute_proto
			err = p.attribute(f, b, 0)
		case 13:
			op.overload, err = f.text()
		}
		return err
	})
	op.domain = ours(op.domain)
	if p.functions[op] != nil {
		err = errors.Join(err, fmt.Errorf("%w: it defines the function %q twice", ErrModel, op.name))
	}
	p.functions[op] = b
	return errors.Join(err, p.count())
}

// expand checks the operators of the model and of the functions that it calls, and how many nodes there are when each
// call has become the function's nodes.
func (p *parser) expand() error {
	_, err := p.expandBody(&p.main, "its graph", 0)
	return err
}

// expandBody returns the number of nodes of a body, and one. what names it, depth is that of the calls that led to it.
func (p *parser) expandBody(b *body, what string, depth int) (int, error) {
	if b.expanded > 0 {
		return b.expanded, nil
	}
	if b.entered {
		return 0, fmt.Errorf("%w: %s calls itself", ErrModel, what)
	}
	if depth > p.limits.Depth {
		return 0, fmt.Errorf("%w: its functions call functions to a depth of more than %d", ErrModel, p.limits.Depth)
	}
	b.entered = true
	total := b.nodes + 1
	for _, op := range slices.SortedFunc(maps.Keys(b.calls), func(a, b operator) int {
		return slices.Compare([]string{a.domain, a.name, a.overload}, []string{b.domain, b.name, b.overload})
	}) {
		f := p.functions[op]
		if why := refused[op]; why != "" && f == nil {
			return 0, fmt.Errorf("%w: its operator %q is refused: %s", ErrModel, op.name, why)
		}
		if f == nil && !slices.Contains(domains, op.domain) {
			return 0, fmt.Errorf("%w: it needs custom operators of domain %q (%q), which are not loaded: export it without them", ErrModel, op.domain, op.name)
		}
		if f == nil {
			continue
		}
		n, err := p.expandBody(f, fmt.Sprintf("its function %q", strings.TrimPrefix(op.domain+"."+op.name, ".")), depth+1)
		if err != nil {
			return 0, err
		}
		if calls := b.calls[op]; calls > p.limits.Parts/n || total > p.limits.Parts-calls*n {
			return 0, fmt.Errorf("%w: its functions become more than %d nodes", ErrModel, p.limits.Parts)
		}
		total += b.calls[op] * n
	}
	b.expanded = total
	return total, nil
}
