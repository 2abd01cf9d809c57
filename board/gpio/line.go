// SPDX-License-Identifier: Apache-2.0

package gpio

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A Line is named as the device tree or the board names it, or by its place.
type Line struct {
	Name      string // such as "PQ.05"; empty: Chip and Offset
	Chip      string // such as "gpiochip0"; with a Name: where it is looked for, empty: everywhere
	Offset    int    // on Chip
	ActiveLow bool   // a low voltage is 1
}

// String names the line as it was asked for.
func (l Line) String() string {
	if l.Name != "" {
		return l.Name
	}
	return fmt.Sprintf("%s line %d", l.Chip, l.Offset)
}

// chipName is what a chip's device file may be called: a line's own name may have a colon, too.
var chipName = regexp.MustCompile(`^gpiochip[0-9]{1,9}$`)

// nameBytes is how long the kernel keeps names of lines (GPIO_MAX_NAME_SIZE, with a zero byte at its end).
const nameBytes = 31

// UnmarshalText implements encoding.TextUnmarshaler: "PQ.05" is a line of that name, wherever it is; "gpiochip0:5" a place;
// "gpiochip0:PQ.05" a name on one chip. ActiveLow stays as it is.
func (l *Line) UnmarshalText(b []byte) error {
	text := string(b)
	chip, rest, found := strings.Cut(text, ":")
	if !found || !chipName.MatchString(chip) {
		chip, rest = "", text
	}
	if rest == "" || len(rest) > nameBytes || strings.ContainsFunc(rest, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("%q: write its name, such as PQ.05, or its place, such as gpiochip0:5; gpioinfo lists what there is", b)
	}
	next := Line{Name: rest, Chip: chip, ActiveLow: l.ActiveLow}
	if n, err := strconv.ParseUint(rest, 10, 16); err == nil && chip != "" {
		next.Name, next.Offset = "", int(n)
	}
	*l = next
	return nil
}
