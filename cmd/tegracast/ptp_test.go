// SPDX-License-Identifier: Apache-2.0

package main

import (
	"log/slog"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/board/vjetson"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
)

// ptp4lConf is linuxptp's configuration, with time stamps by software, as virtio_net has none of its own. The machine
// with the lower priority1 is the master.
const ptp4lConf = `[global]
time_stamping software
network_transport UDPv4
tx_timestamp_timeout 1000
uds_address /run/ptp4l
use_syslog 0
verbose 1
priority1 `

// startPTP4L is a command that starts ptp4l in a machine. Both machines begin with one address and one MAC; the first
// argument of the shell is the number of the machine.
const startPTP4L = `set -e
ip address flush dev eth0
ip link set eth0 down
ip link set eth0 address 52:54:00:12:34:5$0
ip address add 192.168.77.1$0/24 dev eth0
ip link set eth0 up
ip route add 224.0.0.0/4 dev eth0
ptp4l -f /etc/ptp4l.conf -i eth0 >/run/ptp4l.log 2>&1 &
echo $! >/run/ptp4l.pid`

// askPTP4L asks ptp4l for the state of its port.
const askPTP4L = "timeout 20 pmc -u -b 0 -s /run/ptp4l -i /run/pmc 'GET PORT_DATA_SET' 2>&1 </dev/null"

// connectMachines connects the networks of two machines on this host.
func connectMachines(t *testing.T, a, b *vjetson.Machine) {
	t.Helper()
	command := func(m *vjetson.Machine, line string, args ...string) *exec.Cmd {
		c, err := m.HostCommand(t.Context(), append([]string{"sh", "-ec", line}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	there := command(b, "exec sleep infinity") // stands for the other network while it gets its end of the cable
	if err := there.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = there.Process.Kill(), there.Wait() }()
	const bridge = "; ip link add br0 type bridge; for d in tap0 cable; do ip link set $d master br0; done; for d in br0 cable; do ip link set $d up; done"
	for _, c := range []*exec.Cmd{
		command(a, "ip link add cable type veth peer name cable netns $0"+bridge, strconv.Itoa(there.Process.Pid)), command(b, "true"+bridge),
	} {
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
}

// TestPTP synchronises the clocks of two virtual Jetsons with linuxptp. The cameras' clock follows that of the second
// one, which has the first one's time until ptp4l ends, and is believed after that, too (docs/operations.md, "One
// clock"). Times in an emulator mean nothing: only the states are checked.
func TestPTP(t *testing.T) {
	if !longRun {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make test-long)")
	}
	ptp, err := vjetson.FetchPackages(t.Context(), "arm64", "bookworm", slog.Default(), "linuxptp")
	if err != nil {
		t.Fatal(err)
	}
	kernel, err := vjetson.Fetch(t.Context(), "arm64", slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	inside := buildARM64(t)
	var machines []*vjetson.Machine
	for i, priority := range []string{"100", "200"} {
		m := vjetson.StartTest(t, vjetson.Config{Kernel: kernel, Network: true, Files: map[string]string{
			"/bin/tegracast":  inside,
			"/usr/sbin/ptp4l": filepath.Join(ptp.Dir, "usr/sbin/ptp4l"), "/usr/sbin/pmc": filepath.Join(ptp.Dir, "usr/sbin/pmc"),
			"/etc/ptp4l.conf": programtest.Write(t, "ptp4l.conf", ptp4lConf+priority+"\n"),
			"/etc/clock.yaml": programtest.Write(t, "clock.yaml", "memory: host\nweb: {listen: none}\nclock: {source: system}\n"+
				"sources: [{name: camera, model: {width: 64, height: 48, rate: 2}}]\noutputs: [{name: lines, from: camera, results: {udp: [\"127.0.0.1:9\"]}}]\n"),
		}})
		machines = append(machines, m)
		if i > 0 {
			connectMachines(t, machines[0], m)
		}
	}
	for i, m := range machines {
		if r, err := m.Run(t.Context(), "sh", "-c", startPTP4L, strconv.Itoa(i+1)); err != nil || r.Status != 0 {
			t.Fatalf("%v %+v", err, r)
		}
	}
	awaitPTP(t, machines[0], "MASTER")
	awaitPTP(t, machines[1], "SLAVE")
	slave := machines[1]
	const states = `sed -n "s/.*msg=\"the cameras' clock: \([a-z]*\)\".*/\1/p" /run/serve.log`
	if out, err := slave.Shell(t.Context(), "(tegracast serve --config /etc/clock.yaml --sdp-dir /run >/run/serve.log 2>&1 &)"); err != nil {
		t.Fatal(err, out)
	}
	awaitShell(t, slave, "locked", states, func(out string) bool { return strings.HasSuffix(out, "locked\n") })
	awaitPTP(t, slave, "SLAVE")
	if out, err := slave.Shell(t.Context(), "kill $(cat /run/ptp4l.pid); sleep 20"); err != nil {
		t.Fatal(err, out)
	}
	if out, err := slave.Shell(t.Context(), askPTP4L); strings.Contains(out, "portState") {
		t.Errorf("ptp4l still answers: %v\n%s", err, out)
	}
	awaitShell(t, slave, "locked without ptp4l", states, func(out string) bool { return strings.HasSuffix(out, "locked\n") })
	awaitPTP(t, machines[0], "MASTER")
}

// awaitPTP waits until ptp4l says by pmc that its port has a state.
func awaitPTP(t *testing.T, m *vjetson.Machine, state string) {
	t.Helper()
	awaitShell(t, m, state, askPTP4L+"; tail -n 5 /run/ptp4l.log", func(out string) bool {
		for line := range strings.Lines(out) {
			if f := strings.Fields(line); len(f) == 2 && f[0] == "portState" && f[1] == state {
				return true
			}
		}
		return false
	})
}

// awaitShell waits until the output of a command in a machine is as wanted.
func awaitShell(t *testing.T, m *vjetson.Machine, what, line string, wanted func(out string) bool) {
	t.Helper()
	for began := time.Now(); ; {
		out, err := m.Shell(t.Context(), line+"; sleep 1")
		switch {
		case err != nil:
			t.Fatal(err, out)
		case wanted(out):
			t.Logf("%s after %v", what, time.Since(began).Round(time.Second))
			return
		case time.Since(began) > 5*time.Minute:
			said, _ := m.Shell(t.Context(), "tail -n 20 /run/ptp4l.log /run/serve.log")
			t.Fatalf("not %s: %s\n%s", what, out, said)
		}
	}
}
