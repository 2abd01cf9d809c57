// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
)

// TestEveryKindCanBeOpened checks that this package can open every kind of part that a configuration may have.
func TestEveryKindCanBeOpened(t *testing.T) {
	for _, x := range []struct {
		table  reflect.Type
		opened []reflect.Type
	}{
		{reflect.TypeFor[config.SourceKinds](), slices.Collect(maps.Keys(sources))},
		{reflect.TypeFor[config.StageKinds](), slices.Collect(maps.Keys(stages))},
		{reflect.TypeFor[config.OutputKinds](), slices.Collect(maps.Keys(sinks))},
	} {
		n := 0
		for f := range x.table.Fields() {
			kind := f.Type
			if kind.Kind() == reflect.Slice {
				kind = kind.Elem()
			}
			if n++; !slices.Contains(x.opened, kind) {
				t.Errorf("nothing opens %v: add a file with an init function, as the other kinds have", kind)
			}
		}
		if n < 2 || n != len(x.opened) {
			t.Errorf("%v has %d kinds, and %d are opened", x.table, n, len(x.opened))
		}
	}
}
