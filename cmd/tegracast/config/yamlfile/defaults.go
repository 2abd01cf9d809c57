// SPDX-License-Identifier: Apache-2.0

package yamlfile

import (
	"encoding/json"
	"regexp"

	"github.com/invopop/jsonschema"
)

// stated matches a default of one word in a description: "(default 2)", or "latest (default)".
var stated = regexp.MustCompile(`\(default '?([^\s(),;']+)'?[);]|([^\s(),:;]+) \(default\)`)

// SetDefaults sets the default of each property of a schema and of its definitions to the one that its description
// states, for editors.
func SetDefaults(s *jsonschema.Schema) {
	setDefaults(s)
	for _, d := range s.Definitions {
		setDefaults(d)
	}
}

func setDefaults(s *jsonschema.Schema) {
	for p := s.Properties.Oldest(); p != nil; p = p.Next() {
		words := stated.FindStringSubmatch(p.Value.Description)
		if words == nil {
			continue
		}
		word, v := words[1]+words[2], p.Value
		var value any
		switch number := json.Unmarshal([]byte(word), &value) == nil; {
		case v.Type == "string":
			v.Default = word
		case number:
			v.Default = value
		}
	}
}
