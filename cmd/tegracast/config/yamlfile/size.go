// SPDX-License-Identifier: Apache-2.0

package yamlfile

import (
	"fmt"
	"strconv"
	"strings"
)

// Size is a number of bytes, written in a file with a unit, such as 4GB or 512MiB. 16M is 16MiB, as for dd(1). A number
// without a unit is in bytes.
type Size int64

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Size) UnmarshalText(text []byte) error {
	word := strings.TrimSpace(string(text))
	digits := strings.TrimRight(word, "KMGTBikmgtb ")
	n, err := strconv.ParseFloat(digits, 64)
	unit, known := units[strings.ToUpper(strings.TrimSpace(word[len(digits):]))]
	if err != nil || !known || n < 0 || n*unit > maxSize {
		return fmt.Errorf("%q: write a size such as 4GB or 512MiB", word)
	}
	*s = Size(n * unit)
	return nil
}

// units maps the units of sizes, in upper case, to bytes.
var units = map[string]float64{
	"B": 1, "": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40,
	"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40,
}

const maxSize = 1 << 60
