// SPDX-License-Identifier: Apache-2.0

package rtptest

import (
	"math/rand/v2"
	"net"
	"testing"
)

// EvenPorts finds n even UDP ports on the loopback whose successors are free too. They are below the ports that the
// kernel assigns by itself (ip(7), ip_local_port_range).
func EvenPorts(t testing.TB, n int) []int {
	t.Helper()
	var found []int
	for tries := 0; len(found) < n && tries < 1000; tries++ {
		p := 10000 + 2*rand.IntN(10000)
		free := true
		for _, k := range []int{p, p + 1} {
			c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: k})
			if err != nil {
				free = false
				break
			}
			defer c.Close() // only at the end, so that no port is found twice
		}
		if free {
			found = append(found, p)
		}
	}
	if len(found) < n {
		t.Fatal("no free ports")
	}
	return found
}

// GStreamer lists the Debian packages of GStreamer that tests need.
const GStreamer = "gstreamer1.0-tools gstreamer1.0-plugins-base gstreamer1.0-plugins-good"
