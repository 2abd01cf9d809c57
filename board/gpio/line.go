// SPDX-License-Identifier: Apache-2.0

package gpio

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A Line identifies a GPIO line, by its name in the device tree or on the board, or by its position.
type Line struct {
	Name      string // such as "PQ.05"; empty: use Chip and Offset
	Chip      string // such as "gpiochip0"; with a Name: the chip to search, empty: all chips
	Offset    int    // on Chip
	ActiveLow bool   // a low voltage is 1
}

// String returns the line's name, or its chip and offset if it has none.
func (l Line) String() string {
	if l.Name != "" {
		return l.Name
	}
	return fmt.Sprintf("%s line %d", l.Chip, l.Offset)
}

// chipName matches the name of a chip's device file. It is needed because a line's name may contain a colon too.
var chipName = regexp.MustCompile(`^gpiochip[0-9]{1,9}$`)

// nameBytes is the maximum length of line names in the kernel (GPIO_MAX_NAME_SIZE, which includes a terminating zero
// byte).
const nameBytes = 31

// UnmarshalText implements encoding.TextUnmarshaler: "PQ.05" is a line with that name on any chip, "gpiochip0:5" a
// position, and "gpiochip0:PQ.05" a name on one chip. ActiveLow is not changed.
func (l *Line) UnmarshalText(b []byte) error {
	text := string(b)
	chip, rest, found := strings.Cut(text, ":")
	if !found || !chipName.MatchString(chip) {
		chip, rest = "", text
	}
	if rest == "" || len(rest) > nameBytes || strings.ContainsFunc(rest, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("%q: write its name, such as PQ.05, or its place, such as gpiochip0:5; gpioinfo lists all lines", b)
	}
	next := Line{Name: rest, Chip: chip, ActiveLow: l.ActiveLow}
	if n, err := strconv.ParseUint(rest, 10, 16); err == nil && chip != "" {
		next.Name, next.Offset = "", int(n)
	}
	*l = next
	return nil
}
