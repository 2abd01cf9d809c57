// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"io"
	"reflect"
	"strconv"
	"time"

	"github.com/invopop/jsonschema"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// WriteSchema writes the JSON Schema of the configuration, for editors.
func WriteSchema(w io.Writer) error {
	text := func(pattern string) *jsonschema.Schema {
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "string", Pattern: pattern}, {Type: "integer", Minimum: "1", Maximum: "1000000"}}}
	}
	words := func(w ...any) *jsonschema.Schema { return &jsonschema.Schema{Type: "string", Enum: w} }
	special := map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[yamlfile.Word[pipeline.Rate]](): text(`^[1-9][0-9]*(/[1-9][0-9]*)?$`),
		reflect.TypeFor[yamlfile.Word[time.Duration]](): {Type: "string", Pattern: `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`},
		reflect.TypeFor[yamlfile.Word[packetSize]](): {OneOf: []*jsonschema.Schema{
			{Type: "string", Enum: []any{"auto"}},
			{Type: "integer", Minimum: json.Number(strconv.Itoa(rtp.MinMTU)), Maximum: json.Number(strconv.Itoa(rtp.MaxMTU))},
		}},
		reflect.TypeFor[Size](): {Type: "string", Pattern: `^[0-9]+(\.[0-9]+)?\s*([KMGTkmgt]([Ii]?[Bb])?|[Bb])$`},
		reflect.TypeFor[yamlfile.Word[record.Position]](): {OneOf: []*jsonschema.Schema{
			{Type: "string", Pattern: `^\+?[0-9]+$|^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$|^[0-9]{4}-[0-9]{2}-[0-9]{2}T.+$`},
			{Type: "integer", Minimum: "0"},
		}},
		reflect.TypeFor[lineName]():                       {Type: "string", Pattern: `^[!-~]{1,31}$|^gpiochip[0-9]{1,9}:[!-~]{1,31}$`},
		reflect.TypeFor[yamlfile.Word[pipeline.Policy]](): words("latest", "block"),
		reflect.TypeFor[yamlfile.Word[rtp.Payload]]():     words("raw", "jpeg", "h264", "results"),
		reflect.TypeFor[yamlfile.Word[send.Pacing]]():     words("frame", "wide", "narrow", "burst"),
	}
	r := jsonschema.Reflector{
		FieldNameTag: "yaml", ExpandedStruct: true,
		Mapper: func(t reflect.Type) *jsonschema.Schema {
			if special[t] == nil {
				return nil
			}
			s := *special[t] // each use gets its own description
			return &s
		},
	}
	s := r.Reflect(&File{})
	s.Title, s.ID = "tegracast configuration", "urn:tegracast:configuration"
	yamlfile.SetDefaults(s)
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	return out.Encode(s)
}
