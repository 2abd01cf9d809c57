package main

import (
	"reflect"
	"slices"
	"strings"
)

// changes lists where two configurations differ, as paths such as outputs[raw].rtp.mtu. It knows nothing of the keys: it walks
// over the structs. The elements of a list are told by their names, where they have one; their order does not count.
func changes(old, new Config) []string {
	var list []string
	walkChanges(reflect.ValueOf(old), reflect.ValueOf(new), "", &list)
	return list
}

func walkChanges(a, b reflect.Value, path string, list *[]string) {
	if a.Kind() == reflect.Pointer && !a.IsNil() && !b.IsNil() {
		a, b = a.Elem(), b.Elem()
	}
	switch {
	case a.Kind() == reflect.Struct && hasKeys(a.Type()):
		for i := range a.NumField() {
			key, _, _ := strings.Cut(a.Type().Field(i).Tag.Get("yaml"), ",")
			walkChanges(a.Field(i), b.Field(i), strings.TrimPrefix(path+"."+key, "."), list)
		}
	case a.Kind() == reflect.Slice && a.Type().Elem().Kind() == reflect.Struct && hasName(a.Type().Elem()):
		walkNamed(a, b, path, list)
	case !reflect.DeepEqual(a.Interface(), b.Interface()):
		*list = append(*list, path)
	}
}

// hasKeys tells a part of the configuration from a value that is a struct inside.
func hasKeys(t reflect.Type) bool { return t.NumField() > 0 && t.Field(0).Tag.Get("yaml") != "" }

func hasName(t reflect.Type) bool {
	f, ok := t.FieldByName("Name")
	return ok && f.Type.Kind() == reflect.String
}

// walkNamed compares elements of the same name.
func walkNamed(a, b reflect.Value, path string, list *[]string) {
	elements := func(v reflect.Value) (byName map[string]reflect.Value, names []string) {
		byName = map[string]reflect.Value{}
		for i := range v.Len() {
			name := v.Index(i).FieldByName("Name").String()
			byName[name], names = v.Index(i), append(names, name)
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

// plan says what of a configuration is to be made anew.
type plan struct {
	flows   map[string]bool // by the source's name
	outputs map[string]bool
	cards   map[string]bool // device files that are polled from now on, or no more: all their users have changed
	freezes map[string]bool // isps whose loops are frozen or released, and go on: by name
	memory  bool
	web     bool
	pins    map[string]bool // by their keys under gpio
}

// everything is all that a configuration describes.
func everything(d *document) plan {
	p := plan{flows: map[string]bool{}, outputs: map[string]bool{}, memory: true, web: true, pins: map[string]bool{}}
	for _, name := range lineOrder() {
		p.pins[name] = true
	}
	for _, s := range d.Sources {
		p.flows[s.Name] = true
	}
	for _, o := range d.Outputs {
		p.outputs[o.Name] = true
	}
	return p
}

// planned turns changes into what is to be made anew: an output for its own sake, a flow for its source and its stages but
// for what freezes a loop, and everything for what is not one of these.
func planned(list []string, old, new *document) plan {
	p := plan{flows: map[string]bool{}, outputs: map[string]bool{}, cards: repolled(old, new), freezes: map[string]bool{}, pins: map[string]bool{}}
	for _, path := range list {
		part, rest, _ := strings.Cut(path, "[")
		name, _, _ := strings.Cut(rest, "]")
		switch {
		case part == "sources":
			p.flows[name] = true
		case part == "outputs":
			p.outputs[name] = true
		case part == "isp" && strings.HasSuffix(rest, ".freeze"):
			p.freezes[name] = true
		case part == "isp":
			for _, d := range []*document{old, new} {
				if stage := d.isp(name); stage != nil {
					p.flows[stage.From] = true
				}
			}
		case part == "kernels":
			for _, d := range []*document{old, new} {
				if d.kernel(name) != nil {
					p.flows[d.sourceOf(name)] = true
				}
			}
		case strings.HasPrefix(part, "gpio."):
			key, _, _ := strings.Cut(strings.TrimPrefix(part, "gpio."), ".")
			p.pins[key] = true
			p.pins[strobeLine] = p.pins[strobeLine] || key == triggerLine // which it follows, or does not
		case part == "web" || strings.HasPrefix(part, "web."):
			p.web = true
		default:
			a, b := everything(old), everything(new)
			p.memory = true
			for name := range b.flows {
				a.flows[name] = true
			}
			p.flows = a.flows
		}
	}
	for _, d := range []*document{old, new} {
		for _, name := range lineOrder() {
			p.pins[name] = p.pins[name] || p.flows[d.GPIO.source(name)]
		}
		for i := range d.Outputs {
			o := &d.Outputs[i]
			if p.flows[d.origin(o)] || p.loses(d, o) {
				p.outputs[o.Name] = true
			}
		}
	}
	return p
}

// loses says whether the card of an output is closed: a model's ends with its source.
func (p plan) loses(d *document, o *OutputConfig) bool {
	if o.FPGA == nil {
		return false
	}
	s := d.source(o.FPGA.Card)
	return p.cards[s.card()] || s.Model != nil && p.flows[s.Name]
}

// repolled are the device files of both configurations for which poll differs: a DMA engine has one way of announcing.
func repolled(old, new *document) map[string]bool {
	cards := map[string]bool{}
	for _, a := range old.Sources {
		for _, b := range new.Sources {
			if a.FPGA != nil && b.FPGA != nil && a.card() == b.card() && a.FPGA.Poll != b.FPGA.Poll {
				cards[a.card()] = true
			}
		}
	}
	return cards
}
