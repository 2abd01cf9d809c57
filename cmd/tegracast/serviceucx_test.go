// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"
)

// sendsUCX makes the service send frames by UCX, under all of the unit's restrictions, and receives them on this host.
func (a *installed) sendsUCX(t *testing.T) {
	const file = "/etc/tegracast/tegracast.yaml"
	a.must(t, "cp "+file+" /root/kept; echo '  - {name: shared, from: camera, queue: 1, ucx: {listen: \"0.0.0.0:5020\", receivers: 1}}' >> "+file+"; systemctl reload tegracast")
	a.must(t, said("ucx: listening"))
	receiveFrom(t, a.Machine, a.program, "shared", "8s", "journalctl -q -b -u tegracast -n 20 -o cat")
	a.must(t, "cp /root/kept "+file+"; systemctl reload tegracast")
	a.must(t, "for i in $(seq 60); do grep -q :139C /proc/net/tcp || exit 0; sleep 1; done; exit 1") // port 5020: the library did not take SIGHUP
	a.back(t, "without UCX", time.Now())
}
