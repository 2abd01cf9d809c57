// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/tegracast/tegracast/board/vjetson"
)

// ucxFiles are the libraries of Debian's libucx0, as its package installs them.
func ucxFiles(t *testing.T) map[string]string {
	t.Helper()
	u, err := vjetson.FetchUCX(t.Context(), "arm64", "bookworm", slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	return u.Files()
}

// fansOut has the service send to a receiver on this host by UCX, under all of the unit's restrictions: the camera's frames, with the
// FPGA's own CRC.
func (a *installed) fansOut(t *testing.T) {
	const file = "/etc/tegracast/tegracast.yaml"
	a.must(t, "ldconfig; cp "+file+" /root/kept; echo '  - {name: shared, from: camera, queue: 1, ucx: {listen: \"0.0.0.0:5020\", receivers: 1}}' >> "+file+
		"; systemctl reload tegracast")
	c, err := a.HostCommand(t.Context(), a.program, "receive", "--json", "--duration", "15s", "--ucx", vjetson.GuestAddress+":5020")
	if err != nil {
		t.Fatal(err)
	}
	out, _ := c.Output() // frames that are lost are no fault here
	var r received
	if err := json.Unmarshal(out, &r); err != nil || r.Frames < 10 || r.Traced != r.Frames || r.Mismatched > 0 {
		log, _ := a.Shell(t.Context(), "journalctl -q -b -u tegracast -n 20 -o cat")
		t.Errorf("%v: %+v\n%s", err, r, log)
	}
	t.Logf("by UCX %s to %s: %d frames, all right by the FPGA's CRC; %d lost", r.SenderUCX, r.Release, r.Frames, r.Lost)
	a.must(t, "cp /root/kept "+file+"; systemctl reload tegracast")
	a.is(t, noErrors, "")
}
