// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"fmt"
	"slices"
)

// AddStage adds a stage behind the source or stage that from names. A stage behind another stage must name in
// StageNeeds.From the format that it wants, and is a consumer of that stage, as outputs are. All stages must be added
// before Run. The formats that the stage makes are settled when outputs are attached. depth is the maximum number of
// frames in the added stage's queue, which holds at least 1.
func (g *Graph) AddStage(name string, st Stage, from string, depth int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.claim(name); err != nil {
		return err
	}
	n, err := g.connect(name, st, from, depth)
	if err != nil {
		delete(g.names, name)
		return err
	}
	g.list(func() { g.stages = append(g.stages, n) })
	return nil
}

// connect creates the node of a stage and attaches it to the point that it reads from.
func (g *Graph) connect(name string, st Stage, from string, depth int) (*stageNode, error) {
	if src := g.source(from); src != nil {
		needs, err := st.Needs(src.out.format)
		if err != nil {
			return nil, fmt.Errorf("stage %s: %w", name, err)
		}
		if err := readable(src.out.format, name, from, needs.OnDevice); err != nil {
			return nil, err
		}
		n := newStageNode(g, name, st, needs, src.out, depth)
		if err := g.tap(src.out, n.consumer); err != nil {
			return nil, fmt.Errorf("stage %s: %w", name, err)
		}
		return n, nil
	}
	i := slices.IndexFunc(g.stages, func(n *stageNode) bool { return n.name == from })
	if i < 0 {
		return nil, fmt.Errorf("%w: stage %s reads from %q, which is no source and no stage", ErrName, name, from)
	}
	up := g.stages[i]
	needs, err := st.Needs(up.from.format)
	if err != nil {
		return nil, fmt.Errorf("stage %s: %w", name, err)
	}
	p, err := up.portFor(name, needs)
	if err != nil {
		return nil, err
	}
	n := newStageNode(g, name, st, needs, p, depth)
	n.up = up
	if err := up.provision(p, n.consumer); err != nil {
		up.prune(p)
		return nil, fmt.Errorf("stage %s: %w", name, err)
	}
	p.add(n.consumer)
	return n, nil
}

// portFor returns the port of n from which the stage called name, to be added behind n, reads.
func (n *stageNode) portFor(name string, needs StageNeeds) (*point, error) {
	if needs.From.Pixel == 0 {
		return nil, fmt.Errorf("%w: stage %s reads from stage %s and names no format", ErrNegotiation, name, n.name)
	}
	want := completed(needs.From, n.from.format)
	if err := readable(want, name, n.name, needs.OnDevice); err != nil {
		return nil, err
	}
	p, err := n.port(want)
	if err != nil {
		return nil, fmt.Errorf("stage %s: %w", name, err)
	}
	return p, nil
}
