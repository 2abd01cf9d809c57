// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/tegracast/tegracast/board/vjetson"
)

// sendsUCX has the service send frames by UCX, under all of the unit's restrictions, and receives them on this host.
func (a *installed) sendsUCX(t *testing.T) {
	const file = "/etc/tegracast/tegracast.yaml"
	a.must(t, "cp "+file+" /root/kept; echo '  - {name: shared, from: camera, queue: 1, ucx: {listen: \"0.0.0.0:5020\", receivers: 1}}' >> "+file+"; systemctl reload tegracast")
	a.must(t, said("ucx: listening"))
	// UCX looks for network devices in /sys, which must be that of the network.
	const receive = `mount -t sysfs sysfs /sys && exec "$0" receive --json --duration 8s --ucx ` + vjetson.GuestAddress + `:5020 --stream shared`
	c, err := a.HostCommand(t.Context(), "unshare", "--mount", "env", "UCX_TLS=tcp", "sh", "-c", receive, a.program)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var errs bytes.Buffer
	c.Stderr = &errs
	out, _ := c.Output() // it fails when a frame was lost, as a busy host may
	var r received
	if err := json.Unmarshal(out, &r); err != nil || r.Frames == 0 || r.Traced != r.Frames || r.Mismatched > 0 {
		log, _ := a.Shell(t.Context(), "journalctl -q -b -u tegracast -n 20 -o cat")
		t.Errorf("%v: %+v\n%s\n%s", err, r, &errs, log)
	}
	t.Logf("UCX %s on arm64, %s here: %d frames, all with the FPGA's CRC, lost %d; %.1f s", r.SenderUCX, r.Release, r.Frames, r.Lost, time.Since(began).Seconds())
	a.must(t, "cp /root/kept "+file+"; systemctl reload tegracast")
	a.back(t, "without UCX", time.Now())
}
