// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// unplain matches phrases of comments that have a plainer form, with that form.
var unplain = map[*regexp.Regexp]string{
	regexp.MustCompile(`^((An?|The) )?[\w.]+ (is|are) (what|who|how|where|when|why)\b`): `"holds …", "limits …", "is the number of …"`,
	regexp.MustCompile(`\b(is|are|was|were) (what|who)\b`):                              "a noun",
	regexp.MustCompile(`^\w+: (who|what|whoever|whatever)\b`):                           `"checks that …"`,
	regexp.MustCompile(`\b(of|to|from|away|it) who\b`):                                  `"clients that …"`,
	regexp.MustCompile(`\bwho (asks?|waits?|reads?)\b`):                                 `"a client that …"`,
	regexp.MustCompile(`\bof now\b`):                                                    `"current"`,
	regexp.MustCompile(`\b(says?|tells?) whether\b`):                                    `"reports whether"`,
}

// TestCommentsArePlain fails on comments of Go files with an unplain phrase.
func TestCommentsArePlain(t *testing.T) {
	for name := range strings.FieldsSeq(string(output(t, nil, "git", "ls-files", "*.go"))) {
		source, err := os.ReadFile(filepath.Join(root(t), name))
		if err != nil {
			continue // deleted but not committed
		}
		places := token.NewFileSet()
		file, err := parser.ParseFile(places, name, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, group := range file.Comments {
			text := strings.Join(strings.Fields(group.Text()), " ")
			for phrase, plain := range unplain {
				if found := phrase.FindString(text); found != "" {
					t.Errorf("%v: %q, write %s", places.Position(group.Pos()), found, plain)
				}
			}
		}
	}
}
