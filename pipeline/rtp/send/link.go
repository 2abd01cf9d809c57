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

// linkSpeed returns the rate of an interface in bits per second, or 0 if it has none, as the loopback, or none that is known.
// sysfs is /sys.
func linkSpeed(sysfs, name string) float64 {
	b, err := os.ReadFile(filepath.Join(sysfs, "class/net", name, "speed"))
	if err != nil || name == "" {
		return 0
	}
	megabits, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || megabits <= 0 {
		return 0
	}
	return float64(megabits) * 1e6
}

// checkLink returns a warning if a stream of the given bits per second, to all destinations on the interface, exceeds its
// speed, otherwise "".
func checkLink(name string, speed, bits float64) string {
	if speed == 0 || bits <= speed {
		return ""
	}
	return fmt.Sprintf("the stream needs %.0f Mb/s, %s runs at %.0f Mb/s: frames will be lost; lower the frame rate or the size, or send JPEG",
		bits/1e6, name, speed/1e6)
}
