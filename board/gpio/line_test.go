// SPDX-License-Identifier: Apache-2.0

package gpio

import (
	"errors"
	"strings"
	"testing"
)

// TestLine parses lines as people write them.
func TestLine(t *testing.T) {
	for text, want := range map[string]Line{
		"PQ.05":           {Name: "PQ.05"},
		"gpiochip0:5":     {Chip: "gpiochip0", Offset: 5},
		"gpiochip12:0":    {Chip: "gpiochip12"},
		"gpiochip0:PQ.05": {Name: "PQ.05", Chip: "gpiochip0"},
		"usb:reset":       {Name: "usb:reset"},
		"5":               {Name: "5"},
		"gpiochip0:99999": {Name: "99999", Chip: "gpiochip0"},
	} {
		l := Line{ActiveLow: true}
		want.ActiveLow = true
		if err := l.UnmarshalText([]byte(text)); err != nil || l != want {
			t.Errorf("%q: %+v %v, want %+v", text, l, err, want)
		}
	}
	for _, text := range []string{"", "gpiochip0:", "two words", "tab\t", "ä", strings.Repeat("x", 32)} {
		if err := new(Line).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

// FuzzLine checks that a parsed line has a name or a position, and that its String parses to the same line.
func FuzzLine(f *testing.F) {
	for _, seed := range []string{"PQ.05", "gpiochip0:5", "gpiochip0:PQ.05", "usb:reset", ":", "gpiochip:1", "gpiochip0:-1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var l, again Line
		if l.UnmarshalText([]byte(text)) != nil {
			return
		}
		if l.Name == "" && l.Chip == "" || l.Offset < 0 {
			t.Errorf("%q: %+v", text, l)
		}
		if err := again.UnmarshalText([]byte(text)); err != nil || again != l {
			t.Errorf("%q: %+v, then %+v %v", text, l, again, err)
		}
	})
}

// TestALineThatNoChipHas checks that the error says which chips were searched, even if there is no chip.
func TestALineThatNoChipHas(t *testing.T) {
	l := Line{Name: "NOSUCH"}
	for want, chips := range map[string][]string{
		"NOSUCH is on none of gpiochip0, gpiochip1: gpioinfo":      {"gpiochip0", "gpiochip1"},
		"NOSUCH: there is no GPIO chip that this user may see: gp": nil,
	} {
		if err := onNone(l, chips); !errors.Is(err, ErrNoLine) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q", err, want)
		}
	}
}
