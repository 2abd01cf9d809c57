// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding"
	"fmt"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/tegracast/tegracast/pipeline"
)

// word is a value that is one word in the file, and that knows how to read itself.
type word[T any] struct{ V T }

// Rate and Duration are how a file gives a frame rate and a time.
type (
	Rate     = word[pipeline.Rate]
	Duration = word[time.Duration]
)

// UnmarshalYAML implements yaml.NodeUnmarshaler, so that a word that cannot be read is reported with its place.
func (w *word[T]) UnmarshalYAML(node ast.Node) error {
	var err error
	switch v := any(&w.V).(type) {
	case encoding.TextUnmarshaler:
		err = v.UnmarshalText([]byte(node.GetToken().Value))
	case *time.Duration:
		if *v, err = time.ParseDuration(node.GetToken().Value); err != nil {
			err = fmt.Errorf("%q: write a time such as 8ms", node.GetToken().Value)
		}
	}
	if err != nil {
		return &yaml.SyntaxError{Message: err.Error(), Token: node.GetToken()}
	}
	return nil
}
