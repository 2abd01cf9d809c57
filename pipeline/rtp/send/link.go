// SPDX-License-Identifier: Apache-2.0

package send

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// wireOverhead is the number of bytes that Ethernet and IPv4 add to a UDP payload: preamble 8, header 14, IP and UDP
// 28, check sequence 4, gap 12.
const wireOverhead = 8 + 14 + 28 + 4 + 12

// checkLink returns a warning if a stream of the given bits per second, to all destinations on the interface, exceeds its
// speed, otherwise "". sysfs is /sys. Interfaces without a speed, such as the loopback, cause no warning.
func checkLink(sysfs, name string, bits float64) string {
	b, err := os.ReadFile(filepath.Join(sysfs, "class/net", name, "speed"))
	if err != nil || name == "" {
		return ""
	}
	megabits, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || megabits <= 0 || bits <= float64(megabits)*1e6 {
		return ""
	}
	return fmt.Sprintf("the stream needs %.0f Mb/s, %s runs at %d Mb/s: frames will be lost; lower the frame rate or the size, or send JPEG",
		bits/1e6, name, megabits)
}
