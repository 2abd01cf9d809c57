// SPDX-License-Identifier: Apache-2.0

package yamlfile

import (
	"reflect"
	"slices"
	"strings"
)

// Changes lists where two structs of one type, given by pointers, differ, as paths such as outputs[raw].rtp.mtu. It
// walks the structs and needs no list of keys. It matches the elements of a list by name if they have one, and ignores
// their order.
func Changes(old, new any) []string {
	var list []string
	walkChanges(reflect.ValueOf(old), reflect.ValueOf(new), "", &list)
	return list
}

// Same reports whether two sections, with all defaults filled in, have the same type and the same values.
func Same(a, b any) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && len(Changes(a, b)) == 0
}

func walkChanges(a, b reflect.Value, path string, list *[]string) {
	if a.Kind() == reflect.Pointer && !a.IsNil() && !b.IsNil() {
		a, b = a.Elem(), b.Elem()
	}
	switch {
	case a.Kind() == reflect.Struct && HasKeys(a.Type()):
		for i := range a.NumField() {
			f, at := a.Type().Field(i), path
			if !f.IsExported() {
				continue
			}
			if key := Key(f); key != "" {
				at = strings.TrimPrefix(path+"."+key, ".")
			}
			walkChanges(a.Field(i), b.Field(i), at, list)
		}
	case a.Kind() == reflect.Slice && hasName(a.Type().Elem()):
		walkNamed(a, b, path, list)
	case !reflect.DeepEqual(a.Interface(), b.Interface()):
		*list = append(*list, path)
	}
}

// HasKeys reports whether a struct type is a part of the configuration, and not a value that is a struct internally.
func HasKeys(t reflect.Type) bool { return t.NumField() > 0 && t.Field(0).Tag.Get("yaml") != "" }

func hasName(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return false
	}
	f, ok := t.FieldByName("Name")
	return ok && f.Type.Kind() == reflect.String
}

// walkNamed compares elements that have the same name, and lists those that only one of a and b has.
func walkNamed(a, b reflect.Value, path string, list *[]string) {
	elements := func(v reflect.Value) (byName map[string]reflect.Value, names []string) {
		byName = map[string]reflect.Value{}
		for i := range v.Len() {
			element := reflect.Indirect(v.Index(i))
			name := element.FieldByName("Name").String()
			byName[name], names = element, append(names, name)
		}
		return byName, names
	}
	olds, names := elements(a)
	news, added := elements(b)
	for _, name := range added {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		x, was := olds[name]
		y, is := news[name]
		at := path + "[" + name + "]"
		if was && is {
			walkChanges(x, y, at, list)
		} else {
			*list = append(*list, at)
		}
	}
}

// Key returns the key of a field in the file. It is empty for a field without one, such as an embedded struct, whose
// keys belong to the struct around it.
func Key(f reflect.StructField) string {
	key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return key
}
