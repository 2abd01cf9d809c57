// SPDX-License-Identifier: Apache-2.0

package yamlfile

import (
	"github.com/goccy/go-yaml/token"
)

// Bounds of a configuration file. The YAML library uses memory quadratic in a file's depth, and time quadratic in the
// number of its keys. No configuration comes near them.
const (
	maxDepth = 50    // nested lists and maps
	maxKeys  = 10000 // in all maps together
)

// checkShape refuses a file that would overload the library, before its tokens are parsed.
func (d *document) checkShape(tokens token.Tokens) error {
	flow, keys, line := 0, 0, 0
	var columns []int // columns at which the open blocks begin
	for _, t := range tokens {
		first := t.Position.Line != line
		line = t.Position.Line
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow = max(0, flow-1)
		case token.MappingValueType:
			keys++
		case token.SequenceEntryType, token.MappingKeyType:
			first = true // the rest of the line may be a block, too
		}
		if first && flow == 0 {
			for len(columns) > 0 && columns[len(columns)-1] >= t.Position.Column {
				columns = columns[:len(columns)-1]
			}
			columns = append(columns, t.Position.Column)
		}
		at := Place{file: d.path, line: t.Position.Line, column: t.Position.Column}
		switch {
		case flow+len(columns) > maxDepth:
			return at.Errorf("more than %d lists and maps inside one another: no configuration has so many", maxDepth)
		case keys > maxKeys:
			return at.Errorf("more than %d keys: no configuration has so many", maxKeys)
		}
	}
	return nil
}
