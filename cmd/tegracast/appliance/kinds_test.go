// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
)

// TestEveryKindCanBeOpened: whatever a configuration may have is in one of the tables of kinds.go.
func TestEveryKindCanBeOpened(t *testing.T) {
	text, err := os.ReadFile("kinds.go")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, table := range []any{config.SourceKinds{}, config.StageKinds{}, config.OutputKinds{}} {
		for f := range reflect.TypeOf(table).Fields() {
			kind := f.Type
			if kind.Kind() == reflect.Slice {
				kind = kind.Elem()
			}
			n++
			if !strings.Contains(string(text), "case "+kind.String()+":") {
				t.Errorf("%v is in no table: add how it is opened", kind)
			}
		}
	}
	if n < 8 {
		t.Errorf("only %d kinds were looked at", n)
	}
}
