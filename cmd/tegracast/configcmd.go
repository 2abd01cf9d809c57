package main

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/invopop/jsonschema"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

const configUsage = `Usage: tegracast config default | check FILE | schema

  default      prints the default configuration, with comments
  check FILE   validates a configuration: file, line and column of the first mistake, status 2
  schema       prints the JSON Schema of the configuration, for editors
`

func configCommand(_ context.Context, e env, args []string) error {
	f := e.flags("config", configUsage)
	if err := f.Parse(args); err != nil {
		return parseError(f, err)
	}
	switch a := f.Args(); {
	case len(a) == 1 && a[0] == "default":
		_, err := e.out.Write(defaultYAML)
		return err
	case len(a) == 2 && a[0] == "check":
		d, err := readConfig(a[1])
		if err != nil {
			return err
		}
		fmt.Fprintf(e.out, "%s: good: sources %d, isp %d, outputs %d\n", a[1], len(d.Sources), len(d.ISP), len(d.Outputs))
		return nil
	case len(a) == 1 && a[0] == "schema":
		return printSchema(e)
	}
	return usageError{fmt.Errorf("say default, check FILE or schema: try tegracast config --help")}
}

func printSchema(e env) error {
	text := func(pattern string) *jsonschema.Schema {
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "string", Pattern: pattern}, {Type: "integer", Minimum: "1", Maximum: "1000000"}}}
	}
	words := func(w ...any) *jsonschema.Schema { return &jsonschema.Schema{Type: "string", Enum: w} }
	special := map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[word[pipeline.Rate]]():   text(`^[1-9][0-9]*(/[1-9][0-9]*)?$`),
		reflect.TypeFor[word[time.Duration]]():   {Type: "string", Pattern: `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s))+$`},
		reflect.TypeFor[lineName]():              {Type: "string", Pattern: `^[!-~]{1,31}$|^gpiochip[0-9]{1,9}:[!-~]{1,31}$`},
		reflect.TypeFor[word[pipeline.Policy]](): words("latest", "block"),
		reflect.TypeFor[word[rtp.Payload]]():     words("raw", "jpeg", "results"),
		reflect.TypeFor[word[send.Pacing]]():     words("frame", "wide", "narrow", "burst"),
	}
	r := jsonschema.Reflector{
		FieldNameTag: "yaml", ExpandedStruct: true,
		Mapper: func(t reflect.Type) *jsonschema.Schema {
			if special[t] == nil {
				return nil
			}
			s := *special[t] // each place gets a description of its own
			return &s
		},
	}
	s := r.Reflect(&Config{})
	s.Title, s.ID = "tegracast configuration", ""
	out := json.NewEncoder(e.out)
	out.SetIndent("", "  ")
	return out.Encode(s)
}
