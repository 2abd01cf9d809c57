// SPDX-License-Identifier: Apache-2.0

package yamlfile

import (
	"encoding"
	"fmt"
	"strconv"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

// Word is a value that is one word in the file: a time.Duration, or a type whose pointer is an encoding.TextUnmarshaler.
type Word[T any] struct{ V T }

// UnmarshalYAML implements yaml.NodeUnmarshaler, so that the error about an invalid word contains the word's place.
func (w *Word[T]) UnmarshalYAML(node ast.Node) error {
	var err error
	switch v := any(&w.V).(type) {
	case encoding.TextUnmarshaler:
		err = v.UnmarshalText([]byte(node.GetToken().Value))
	case *time.Duration:
		text := node.GetToken().Value
		if *v, err = time.ParseDuration(text); err != nil {
			err = fmt.Errorf("%q: write a time such as 8ms", text)
		}
		if _, number := strconv.ParseFloat(text, 64); err != nil && number == nil {
			err = fmt.Errorf("%q: the unit is missing: write %ss, or another one of h, m, s, ms and us", text, text)
		}
	}
	if err != nil {
		return &yaml.SyntaxError{Message: err.Error(), Token: node.GetToken()}
	}
	return nil
}
