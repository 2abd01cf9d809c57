// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// pacedFiles returns the files that kernelPacing needs in its machine.
func pacedFiles(t *testing.T) map[string]string {
	dir := t.TempDir()
	inside, config := filepath.Join(dir, "arm64"), filepath.Join(dir, "config.yaml")
	build(t, "arm64", inside)
	narrow := strings.NewReplacer("payload: raw,", "payload: raw, pacing: narrow,", "rate: 5", "rate: 4").Replace(serveConfig)
	if err := os.WriteFile(config, []byte(narrow), 0o600); err != nil {
		t.Fatal(err)
	}
	return map[string]string{"/usr/bin/tegracast": inside, "/etc/tegracast.yaml": config}
}

// kernelPacing streams through the queueing disciplines that hold packets until their time, which this host's own kernel
// may lack, and through one that does not.
func kernelPacing(t *testing.T, m *Machine) {
	dir := t.TempDir()
	outside := filepath.Join(dir, "host")
	build(t, "", outside)
	ctx := t.Context()
	const etf = "prio && tc qdisc add dev eth0 parent 1:1 etf clockid CLOCK_TAI delta 10000000 && " +
		"for port in 5004 5006; do tc filter add dev eth0 parent 1: protocol ip u32 match ip dport $port 0xffff flowid 1:1; done"
	for _, tt := range []struct{ name, qdisc, says string }{
		{"fq", "fq", "the kernel paces, by fq"},
		{"etf", etf, "the kernel paces, by etf"}, // drops packets without a time: RTCP must not use it
		{"neither", "pfifo", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := m.Shell(ctx, "tc qdisc del dev eth0 root 2>/dev/null; tc qdisc add dev eth0 root handle 1: "+tt.qdisc); err != nil {
				t.Fatal(err)
			}
			if _, err := m.Shell(ctx, "rm -rf /run/sdp; mkdir /run/sdp; systemd-run -q --unit=serve tegracast serve --config /etc/tegracast.yaml --sdp-dir /run/sdp; "+
				"for i in $(seq 2400); do [ -s /run/sdp/raw.sdp ] && exit 0; sleep .05; done; exit 1"); err != nil {
				t.Fatal(err)
			}
			sdp := filepath.Join(dir, "raw.sdp")
			if err := m.CopyOut(ctx, "/run/sdp/raw.sdp", sdp); err != nil {
				t.Fatal(err)
			}
			if tt.name == "etf" { // drops packets for which an emulated processor is late
				if _, err := m.Shell(ctx, "until tc -s qdisc show dev eth0 | grep -A1 etf | grep -q 'Sent .* [0-9][0-9][0-9]* pkt'; do sleep .1; done"); err != nil {
					t.Errorf("nothing left by etf: %v", err)
				}
			} else {
				receive(t, m, outside, sdp)
			}
			log, err := m.Shell(ctx, "systemctl stop serve; systemctl show -p Result serve; systemctl reset-failed serve 2>/dev/null; "+
				"journalctl -q -u serve -o cat; journalctl --rotate -q --vacuum-time=1s >/dev/null 2>&1; tc -s qdisc show dev eth0")
			if err != nil {
				t.Fatal(err)
			}
			if paces := strings.Count(log, "the kernel paces"); tt.says != "" && paces == 0 || tt.says == "" && paces != 0 || !strings.Contains(log, tt.says) {
				t.Errorf("the log does not say %q:\n%s", tt.says, log)
			}
			if !strings.Contains(log, "Result=success") {
				t.Errorf("serve does not end in order:\n%s", log)
			}
		})
	}
}
