// SPDX-License-Identifier: Apache-2.0

package memlock

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// DropIn is the path of the drop-in that sets the limit of the installed service. The package creates it, and the
// machine's administrator may change it.
const DropIn = "/etc/systemd/system/tegracast.service.d/50-memlock.conf"

const remedy = "raise LimitMEMLOCK= in " + DropIn + ", then systemctl daemon-reload and systemctl restart tegracast"

// OfService returns the limit of the installed service, from the drop-in in the file system root, or nil if there is no
// drop-in, or if it sets no limit or infinity. A drop-in that cannot be read, or whose LimitMEMLOCK= is invalid or
// outside [Service], is an error.
func OfService(root fs.FS) (*Limit, error) {
	unit, err := fs.ReadFile(root, strings.TrimPrefix(DropIn, "/"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var l *Limit
	section := ""
	for i, line := range strings.Split(string(unit), "\n") {
		line = strings.TrimSpace(line)
		key, value, _ := strings.Cut(line, "=")
		switch {
		case strings.HasPrefix(line, "["):
			section = line
			continue
		case strings.TrimSpace(key) != "LimitMEMLOCK":
			continue
		case section != "[Service]":
			err = errors.New("LimitMEMLOCK= belongs below [Service]")
		default:
			l, err = parse(strings.TrimSpace(value))
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", DropIn, i+1, err)
		}
	}
	return l, nil
}

var sizes = regexp.MustCompile(`^(\d+)([KMGT]?)(?::(?:\d+[KMGT]?|infinity))?$`)

// parse reads the value of LimitMEMLOCK= (systemd.exec(5), Process Properties): the soft limit, or a soft and a hard
// one. It returns nil for infinity.
func parse(value string) (*Limit, error) {
	if value == "infinity" || value == "infinity:infinity" {
		return nil, nil
	}
	m := sizes.FindStringSubmatch(value)
	if m == nil {
		return nil, fmt.Errorf("LimitMEMLOCK=%s: must be a number of bytes, which may end with K, M, G or T, or infinity", value)
	}
	shift := 10 * (strings.Index("KMGT", m[2]) + 1)
	if m[2] == "" {
		shift = 0
	}
	n, err := strconv.ParseUint(m[1], 10, 64)
	if err != nil || n > math.MaxUint64>>shift {
		return nil, fmt.Errorf("LimitMEMLOCK=%s: is too large: write infinity", value)
	}
	return &Limit{Bytes: n << shift, From: "LimitMEMLOCK= in " + DropIn, Remedy: remedy}, nil
}
