// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/board/vjetson"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/receive"
)

// installed is the appliance in the virtual Jetson: Debian with the packages installed, the FPGA's camera, and this host
// as the receiver.
type installed struct {
	*vjetson.Machine
	program, sdp string
}

// The versions of the packages: a build, and its release.
const older, newer = "1.0.0~git20261123.abcdef0", "1.0.0"

// serviceConfig returns a Debian on a persistent disk, with what the test installs.
func serviceConfig(t *testing.T) vjetson.Config {
	t.Helper()
	dir := t.TempDir()
	kernel, err := vjetson.Fetch(t.Context(), "arm64", slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{older, newer} {
		packages(t, dir, version, "arm64")
	}
	files := map[string]string{
		"/usr/lib/modules/" + kernel.Release + "/updates/tegra_p2p.ko": dkmsModule(t, kernel, filepath.Join(dir, "tegracast-dkms_"+older+"_all.deb")),
		"/root/tegracast.yaml": programtest.Write(t, "config", cameraConfig),
	}
	maps.Copy(files, gpuFiles(t, kernel))
	maps.Copy(files, ucxFiles(t))
	maps.Copy(files, shareFiles(t))
	maps.Copy(files, keptFiles(t))
	for _, deb := range []string{"tegracast_" + older + "_arm64", "tegracast_" + newer + "_arm64", "tegracast-dkms_" + older + "_all"} {
		files["/root/"+deb+".deb"] = filepath.Join(dir, deb+".deb")
	}
	return vjetson.Config{
		Kernel: kernel, Full: true, Disk: filepath.Join(dir, "disk"), Network: true, Files: files,
		Functions: []string{newEndpoint(t, messages, false).Path()},
	}
}

// TestService covers the appliance's life on a board: installed by dpkg, started by systemd, stopped, killed and cut off
// in every way, updated and removed.
func TestService(t *testing.T) {
	if testing.Short() {
		t.Skip("NEEDS a virtual machine, which -short leaves out")
	}
	cfg := serviceConfig(t)
	exe := programtest.Program(t)
	a := &installed{vjetson.StartTest(t, cfg), exe, filepath.Join(t.TempDir(), "raw.sdp")}
	a.install(t)
	a.keeps(t)
	a.shipshape(t)
	a.records(t)
	a.shares(t)
	a.publishes(t)
	a.sendsUCX(t)
	a.recovers(t)
	a.lines(t)
	a.opensGPU(t)
	a.losesGPU(t)
	if err := a.PowerCut(t.Context()); err != nil {
		t.Fatal(err)
	}
	cfg.Files = nil
	began := time.Now()
	a.Machine = vjetson.StartTest(t, cfg)
	a.back(t, "power cut and boot", began)
	a.is(t, noErrors, "")
	a.is(t, "systemctl is-system-running", "running\n")
	a.bootsGPU(t)
	a.reloads(t)
	a.updates(t)
	a.vanishes(t)
}

// is checks the output of a shell line.
func (a *installed) is(t *testing.T, line, want string) {
	t.Helper()
	if out, err := a.Shell(t.Context(), line); out != want {
		t.Errorf("%s: %q %v, want %q", line, out, err, want)
	}
}

// must runs a line of the shell.
func (a *installed) must(t *testing.T, line string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute) // the host may be busy
	defer cancel()
	if out, err := a.Shell(ctx, line); err != nil {
		log, _ := a.Shell(t.Context(), "ps axf -o pid,stat,wchan:20,time,args | grep -v \\[; systemctl status tegracast --no-pager -n 0; journalctl -q -u tegracast -n 40 -o short-precise")
		t.Fatalf("%s: %v\n%s\n%s", line, err, out, log)
	}
}

// noErrors lists the errors of this boot: all but the kernel's own, which misses firmware here.
const noErrors = "journalctl -q -b -p err -o cat _TRANSPORT=journal + _TRANSPORT=stdout + _TRANSPORT=syslog"

// active waits until the service is active.
const active = "for i in $(seq 900); do systemctl is-active -q tegracast && exit 0; sleep .1; done; exit 1"

// install installs both packages. The module is already compiled, so DKMS is not needed. The service is idle until the
// instructions of the installation are followed.
func (a *installed) install(t *testing.T) {
	a.must(t, "depmod -a && dpkg --force-depends -i /root/tegracast-dkms_"+older+"_all.deb && dpkg -i /root/tegracast_"+older+"_arm64.deb > /root/said")
	a.is(t, "systemctl is-active tegracast tegracast-devices; systemctl is-enabled tegracast; ls /etc/tegracast; cat /proc/sys/net/core/?mem_max",
		"inactive\ninactive\ndisabled\n8388608\n8388608\n")
	a.is(t, "sed -n 's/^  # //p' /root/said > /root/next; cat /root/next",
		"tegracast doctor\ntegracast config default > /etc/tegracast/tegracast.yaml\nsystemctl enable --now tegracast\n")
	a.must(t, "grep -v doctor /root/next | sed '/^systemctl/i cp /root/tegracast.yaml /etc/tegracast/' | sh -e")
	a.must(t, active)
	a.is(t, "systemctl is-active tegracast; systemctl is-enabled tegracast", "active\nenabled\n")
	a.is(t, "half=$(awk '/^MemTotal:/ {print int($2/2048)}' /proc/meminfo); limit=$(systemctl show -P LimitMEMLOCK tegracast); [ $limit = $((half << 20)) ] && echo half", "half\n")
	a.is(t, "cat /sys/module/tegra_p2p/parameters/allow_unsafe; stat -c '%U:%G %a' /dev/tegra_p2p0; stat -c %U /proc/$(systemctl show -P MainPID tegracast)", "N\nroot:tegracast 660\ntegracast\n")
	a.must(t, "tegracast doctor")
	a.must(t, "tegracast doctor --service | grep ' device .*in use by tegracast.service (pid [0-9]*)'")
	if err := a.CopyOut(t.Context(), "/run/tegracast/raw.sdp", a.sdp); err != nil {
		t.Fatal(err)
	}
	hostProbe(t, a.Machine, a.sdp, 5*time.Second)
	a.is(t, noErrors, "")
}

// shipshape lets systemd check its unit, and checks that the journal shows a fault's fields.
func (a *installed) shipshape(t *testing.T) {
	a.is(t, "systemd-analyze verify --man=no tegracast.service tegracast-devices.service 2>&1", "")
	a.must(t, "mkdir /tmp/shipped && cp /lib/systemd/system/tegracast.service /tmp/shipped && systemd-analyze security --offline=true --threshold=20 /tmp/shipped/tegracast.service")
	a.must(t, "echo 1 > /sys/bus/pci/devices/"+vjetson.FunctionAddress(0)+"/reset; for i in $(seq 100); do journalctl -q _SYSTEMD_UNIT=tegracast.service SOURCE=camera -o json | grep -q FAULT && exit 0; sleep .1; done; exit 1")
	a.is(t, "journalctl -q _SYSTEMD_UNIT=tegracast.service SOURCE=camera PRIORITY=4 -o json | grep '\"FRAME\":\"[0-9]' | head -n 1 | grep -c .", "1\n")
}

// recovers takes the service down in every way, and checks that it streams again.
func (a *installed) recovers(t *testing.T) {
	if _, err := a.Expect("[Oo]ut of memory|oom-kill|invoked oom-killer"); err != nil {
		t.Fatal(err)
	}
	// The shipped watchdog takes 40 s. One of 6 s is used only for this fault, since it would take a slow machine for a
	// fault.
	const impatient = "/run/systemd/system/tegracast.service.d/impatient.conf"
	a.must(t, "mkdir -p "+filepath.Dir(impatient)+"; printf '[Service]\\nWatchdogSec=6\\n' > "+impatient+"; systemctl daemon-reload; systemctl restart tegracast; "+active)
	for _, tt := range []struct{ name, fault, then, says string }{
		{"SIGSTOP", "systemctl kill --kill-who=main -s STOP tegracast", "rm " + impatient + "; systemctl daemon-reload", "Watchdog timeout"},
		{"SIGKILL", "systemctl kill --kill-who=main -s KILL tegracast", "", "status=9/KILL"},
		{"OOM", "systemctl set-property --runtime tegracast MemoryMax=4M", "systemctl set-property --runtime tegracast MemoryMax=infinity", "oom-kill"},
	} {
		restarts := "systemctl show -P NRestarts tegracast"
		before, err := a.Shell(t.Context(), restarts)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		a.must(t, tt.fault)
		a.must(t, "for i in $(seq 900); do [ $("+restarts+") != "+strings.TrimSpace(before)+" ] && break; sleep .1; done; [ $("+restarts+") != "+strings.TrimSpace(before)+" ]")
		if tt.then != "" {
			a.must(t, tt.then)
		}
		a.back(t, tt.name, began)
		a.is(t, "journalctl -q -b -u tegracast -o cat | grep -c '"+tt.says+"' | grep -cv '^0$'", "1\n")
	}
}

// back waits for good frames at the host, and reports how long that took.
func (a *installed) back(t *testing.T, what string, began time.Time) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	for {
		c, err := a.HostCommand(ctx, a.program, "probe", "--sdp", a.sdp, "--duration", "700ms", "--json")
		if err != nil {
			t.Fatal(err)
		}
		out, _ := c.Output() // silence, and a stream that begins in the middle, are failures for probe
		var got receive.Stats
		if json.Unmarshal(out, &got) == nil && got.Matched > 0 && got.Mismatched == 0 {
			break
		}
		if ctx.Err() != nil {
			log, _ := a.Shell(t.Context(), "journalctl -q -b -u tegracast -n 40 -o short-precise")
			t.Fatalf("%s: the stream does not come back\n%s\n%s", what, out, log)
		}
	}
	t.Logf("%s: good frames again after %.1f s", what, time.Since(began).Seconds())
	a.must(t, active)
}

// reloads reloads the service by systemd. It must stream on.
func (a *installed) reloads(t *testing.T) {
	reloadsTell(t, a.Shell)
	a.back(t, "after reloads", time.Now())
}

// updates installs the release over the build, and the build again. The configuration must stay.
func (a *installed) updates(t *testing.T) {
	sum, err := a.Shell(t.Context(), "sha256sum /etc/tegracast/tegracast.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{newer, older} {
		a.must(t, fmt.Sprintf("pid=$(systemctl show -P MainPID tegracast); dpkg -i /root/tegracast_%s_arm64.deb 2>&1 && for i in $(seq 100); do new=$(systemctl show -P MainPID tegracast) && [ $new != $pid ] && break; sleep .1; done", version))
		a.must(t, active)
		a.is(t, "tegracast version | head -1; sha256sum /etc/tegracast/tegracast.yaml; systemctl is-active tegracast", "tegracast "+version+"\n"+sum+"active\n")
		a.back(t, "to "+version, time.Now())
	}
}

// vanishes removes the packages while the service runs, with an administrator's option set. purge removes the
// configuration, and leaves only the administrator's files and recordings. The service does not start if it was stopped
// before an update.
func (a *installed) vanishes(t *testing.T) {
	left := "find / -xdev \\( -name '*tegracast*' -o -name '*tegra_p2p*' \\) ! -path '/root/*' ! -path '/proc/*' ! -path '/lib/modules/*' ! -path '/usr/lib/modules/*' | sort"
	a.is(t, "systemctl stop tegracast; dpkg -i /root/tegracast_"+newer+"_arm64.deb >/dev/null; systemctl is-active tegracast; systemctl is-enabled tegracast",
		"inactive\nenabled\n")
	a.is(t, "modprobe -r tegra_p2p; tegracast doctor | grep -c 'fix: modprobe tegra_p2p$'; tegracast doctor >/dev/null; echo $?", "1\n1\n")
	a.must(t, "echo TEGRACAST_OPTIONS=--log-level error > /etc/default/tegracast; modprobe tegra_p2p; udevadm settle; systemctl start tegracast")
	a.is(t, "pid=$(systemctl show -P MainPID tegracast); echo $pid >/tmp/pid; cat /proc/$pid/comm; tr '\\0' ' ' </proc/$pid/cmdline | tail -c 18; "+
		"systemctl is-active tegracast; systemctl show -P NeedDaemonReload tegracast", "tegracast\n--log-level error active\nno\n")
	a.must(t, "rm /etc/default/tegracast; dpkg -r tegracast tegracast-dkms 2>/tmp/errors")
	a.is(t, "systemctl is-active tegracast; systemctl show -P LoadState tegracast; ls /etc/tegracast; ps -o args= -p $(cat /tmp/pid); "+
		"lsmod | grep tegra_p2p; grep -v 'files list file' /tmp/errors; "+
		"journalctl -q -b -u tegracast -o cat | tail -n 5 | grep -c 'Deactivated successfully'", "inactive\nnot-found\ntegracast.yaml\n1\n")
	const dropIn = "/etc/systemd/system/tegracast.service.d/cpus.conf"
	a.must(t, "mkdir -p "+filepath.Dir(dropIn)+"; printf '[Service]\\nCPUAffinity=0\\n' > "+dropIn+"; touch /etc/tegracast/mine.cu; dpkg --purge tegracast tegracast-dkms")
	a.is(t, left+"; ls /etc/tegracast; getent passwd tegracast | cut -d : -f 6; systemctl --failed --plain --no-legend",
		"/etc/systemd/system/tegracast.service.d\n/etc/tegracast\n/var/lib/tegracast\nmine.cu\n/var/lib/tegracast\n")
	a.is(t, "ls /etc/systemd/system/tegracast.service.d; cd /var/lib/tegracast; ls -A | sed 's/^kept-.*[.]mcap$/a recording/; s/^[.]kept[.]mcap[.]index$/a recording/' | sort -u",
		"cpus.conf\na recording\n")
	if _, err := os.Stat(a.sdp); err != nil {
		t.Error(err)
	}
}
