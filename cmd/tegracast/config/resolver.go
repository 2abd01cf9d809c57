// SPDX-License-Identifier: Apache-2.0

package config

import (
	"reflect"
	"regexp"
	"strings"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
)

// resolver makes an Appliance from a file, part by part in order. Types, limits and required keys have been checked
// before.
type resolver struct {
	file  *File
	out   *Appliance
	names register // of sources, stages and outputs
	taken register // addresses, channels and sockets used by outputs

	installed *Appliance // what limits a text that comes from the page; nil: the text is a file's
}

// A register records the first section that uses a name, an address, a channel or a socket.
type register map[string]yamlfile.Section

// take records a use of a key. If a section has taken the key before, take returns that section's name and true.
func (r register) take(key string, at yamlfile.Section) (first string, taken bool) {
	if other, taken := r[key]; taken {
		return other.Name(), true
	}
	r[key] = at
	return "", false
}

// nameRule allows only names that are valid in file names: an output's SDP is NAME.sdp.
var nameRule = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// claim records the name of a part. It refuses an invalid name, and one that another part has.
func (r register) claim(at yamlfile.Section, name string) error {
	if !nameRule.MatchString(name) {
		return at.Key("name").Errorf("%q: must be 1 to 64 of the letters A to Z and a to z, digits, _ and -", name)
	}
	if first, taken := r.take(name, at); taken {
		return at.Key("name").Errorf("%q is the name of %s already", name, first)
	}
	return nil
}

// one returns the single kind that a section gives, and that kind's section. It refuses a section that gives no kind or
// several.
func one[K any](at yamlfile.Section, table any) (K, yamlfile.Section, error) {
	kinds, keys, all := given[K](table)
	if len(kinds) != 1 {
		var none K
		return none, at, at.Errorf("give exactly one of %s and %s", strings.Join(all[:len(all)-1], ", "), all[len(all)-1])
	}
	return kinds[0], at.Key(keys[0]), nil
}

// plain returns the text of err without that of kind, with which it begins and which only repeats the place in the
// file.
func plain(err, kind error) string { return strings.TrimPrefix(err.Error(), kind.Error()+": ") }

// given returns the sections that are present in a table such as SourceKinds, their keys, and all possible keys.
func given[K any](table any) (kinds []K, keys, all []string) {
	v := reflect.ValueOf(table)
	for i := range v.NumField() {
		key := yamlfile.Key(v.Type().Field(i))
		all = append(all, key)
		if !v.Field(i).IsNil() {
			kinds, keys = append(kinds, v.Field(i).Interface().(K)), append(keys, key)
		}
	}
	return kinds, keys, all
}
