// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
)

// openAPI has the parts of the document that the test reads.
type openAPI struct {
	OpenAPI    string
	Paths      map[string]map[string]operation
	Components struct {
		Schemas   map[string]any
		Responses map[string]response
	}
}

type operation struct {
	OperationID string
	Responses   map[string]response
}

type response struct {
	Ref     string `json:"$ref"`
	Content map[string]any
}

func theDocument(t *testing.T) (d openAPI) {
	t.Helper()
	b, err := os.ReadFile("page/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &d); err != nil || d.OpenAPI != "3.1.0" {
		t.Fatalf("%s: %v", d.OpenAPI, err)
	}
	return d
}

// TestOpenAPIHasEveryRoute checks that each pattern with a handler in the source is a path of the document, and that each
// path has a handler.
func TestOpenAPIHasEveryRoute(t *testing.T) {
	documented := []string{}
	for path, operations := range theDocument(t).Paths {
		for method := range operations {
			documented = append(documented, strings.ToUpper(method)+" "+path)
		}
	}
	routes := []string{}
	pattern := regexp.MustCompile(`^(GET|POST|PUT|DELETE|PATCH) /[a-z{]`)
	collect := func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			switch text, _ := strconv.Unquote(l.Value); {
			case text == "GET /{file}":
				routes = append(routes, "GET /{name}.sdp", "GET /{name}.jpg", "GET /{name}.mjpeg", "GET /{name}.png", "GET /{name}.dng")
			case pattern.MatchString(text) && !strings.HasPrefix(text, "GET /debug/"): // Go's own handlers
				routes = append(routes, text)
			}
		}
		return true
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, collect)
	}
	slices.Sort(documented)
	slices.Sort(routes)
	if !slices.Equal(documented, routes) {
		t.Errorf("documented:\n%s\nthere are:\n%s", strings.Join(documented, "\n"), strings.Join(routes, "\n"))
	}
}

// TestOpenAPIAnswers checks that the document has the answers of each path, including errors, with their media types.
func TestOpenAPIAnswers(t *testing.T) {
	d := theDocument(t)
	recordings, events := recordPictures(t), NewEvents()
	_, _ = events.Write([]byte("{}\n"))
	base := startServer(t, Config{
		listen: "127.0.0.1:0", Stats: stats, Health: (&state{}).health, Events: events, Outputs: func() []Output { return nil },
		View: func(name string) (View, error) {
			switch name {
			case "film":
				return &film{size: 100}, nil
			case "sealed":
				return nil, http.ErrNotSupported
			}
			return nil, ErrNoOutput
		},
		SDP: func(name string) ([]byte, error) {
			if name == "film" {
				return []byte("v=0\r\n"), nil
			}
			return nil, ErrNoOutput
		},
		Send: func(_ context.Context, name, to string) ([]byte, error) {
			return []byte("v=0\r\n"), notThere(name, to)
		},
		Unsend: notThere, Configurator: editor{}, Settings: knobs{},
		Still: func(_ context.Context, name, _ string) (Still, error) {
			return Still{1, []byte("file")}, notThere(name, "")
		},
		Switch: func(_ context.Context, name string, _ bool) error { return notThere(name, "") },
		Trigger: func(name, _ string) (bool, error) {
			return name != "none", map[bool]error{true: http.ErrNotSupported}[name == "sealed"]
		},
		Recordings: &recordings.Recordings,
		WHEP: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // the handler's own answers are tested in its package
			http.Error(w, r.PathValue("name"), map[string]int{"POST": 415, "DELETE": 404, "PATCH": 405}[r.Method])
		}),
	})
	for path, operations := range d.Paths {
		for method, o := range operations {
			for _, name := range []string{"film", "sealed", "none", recordings.file} {
				for _, host := range []string{"", "evil.example"} {
					status, kind := asked(t, strings.ToUpper(method), base+strings.ReplaceAll(path, "{name}", name), host)
					r, ok := o.Responses[strconv.Itoa(status)]
					if ref := strings.TrimPrefix(r.Ref, "#/components/responses/"); ref != "" {
						r, ok = d.Components.Responses[ref]
					}
					if _, known := r.Content[kind]; !ok || !known {
						t.Errorf("%s %s of %s for %q: status %d, %s is not in the document", method, path, name, host, status, kind)
					}
				}
			}
		}
	}
}

// editor is a Configurator that finds a mistake in an empty text.
type editor struct{}

func (editor) Configuration() Configuration { return Configuration{Text: "web: {}"} }

func (editor) Check(text []byte) Check {
	if len(text) == 0 {
		return Check{Mistakes: []yamlfile.Mistake{{Line: 1, Column: 1, Message: "empty"}}}
	}
	return Check{Good: true}
}

func (e editor) Configure(_ context.Context, text []byte) (Check, error) { return e.Check(text), nil }

func (editor) Reset(context.Context) (Check, error) { return Check{}, http.ErrNotSupported }

// knobs implements Settings. It accepts every setting, except of names that do not exist or are sealed.
type knobs struct{}

func (knobs) Exposures() []Exposure { return nil }

func (knobs) WhiteBalances() []WhiteBalance { return nil }

func (knobs) SetExposure(source string, _ ExposureSetting) error { return notThere(source, "") }

func (knobs) SetWhiteBalance(isp string, _ WhiteBalanceSetting) error { return notThere(isp, "") }

// notThere returns the errors of Send and Unsend for an output.
func notThere(name, _ string) error {
	return map[string]error{"sealed": http.ErrNotSupported, "none": ErrNoOutput}[name]
}

// asked returns the status and the media type of an answer.
func asked(t *testing.T, method, url, host string) (status int, kind string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	answer, err := holder.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	kind, _, err = mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	return answer.StatusCode, kind
}

// TestOpenAPISchemas checks that the schemas are those of the types, apart from descriptions. Empty lists are null.
func TestOpenAPISchemas(t *testing.T) {
	reflector := jsonschema.Reflector{Anonymous: true}
	var types struct {
		Defs map[string]any `json:"$defs"`
	}
	for _, v := range []any{
		&Status{}, &Sample{}, &PictureNotice{}, &EventList{}, &Configuration{}, &Check{}, &ExposureSetting{}, &WhiteBalanceSetting{},
		&RecordingList{}, &RecordedSpan{},
	} {
		b, err := json.Marshal(reflector.Reflect(v))
		if err == nil {
			err = json.Unmarshal(b, &types) // adds to the existing ones
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if got, want := plain(theDocument(t).Components.Schemas), plain(types.Defs); !reflect.DeepEqual(got, want) {
		g, _ := json.MarshalIndent(got, "", " ")
		w, _ := json.MarshalIndent(want, "", " ")
		t.Errorf("the document has\n%s\nthe types\n%s", g, w)
	}
}

// plain returns a schema without the details in which the two notations differ.
func plain(x any) any {
	switch x := x.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, v := range x {
			_, text := v.(string)
			_, flag := v.(bool)
			switch {
			case k == "description" && text, k == "additionalProperties" && flag:
			case k == "$ref":
				out[k] = v.(string)[strings.LastIndex(v.(string), "/")+1:]
			default:
				out[k] = plain(v)
			}
		}
		return out
	case []any:
		if reflect.DeepEqual(x, []any{"array", "null"}) {
			return "array"
		}
		out := []any{}
		for _, v := range x {
			out = append(out, plain(v))
		}
		return out
	}
	return x
}
