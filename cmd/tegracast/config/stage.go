// SPDX-License-Identifier: Apache-2.0

package config

import (
	"reflect"

	"github.com/tegracast/tegracast/cmd/tegracast/config/yamlfile"
)

// stageDepth is the maximum number of frames that wait for a stage.
const stageDepth = 2

// stageList is a list of stages of one kind.
type stageList struct {
	key   string
	kinds []StageKind
}

// list returns the lists of all kinds of stages.
func (k StageKinds) list() (lists []stageList) {
	v := reflect.ValueOf(k)
	for i := range v.NumField() {
		l := stageList{key: yamlfile.Key(v.Type().Field(i))}
		for j := range v.Field(i).Len() {
			l.kinds = append(l.kinds, v.Field(i).Index(j).Interface().(StageKind))
		}
		lists = append(lists, l)
	}
	return lists
}
