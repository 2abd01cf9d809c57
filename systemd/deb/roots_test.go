// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// A debianRelease is a release of Debian, and what it has.
type debianRelease struct {
	version, suite string
	systemd        string
	packages       map[string]string // of the libraries, by doctor's names; "": none that is new enough
}

var debianReleases = []debianRelease{
	{"11", "bullseye", "247", map[string]string{"openh264": "", "libjpeg-turbo": "libturbojpeg0", "UCX": ""}},
	{"12", "bookworm", "252", map[string]string{"openh264": "libopenh264-7", "libjpeg-turbo": "libturbojpeg0", "UCX": "libucx0"}},
	{"13", "trixie", "257", map[string]string{"openh264": "libopenh264-8", "libjpeg-turbo": "libturbojpeg0", "UCX": "libucx0"}},
}

// TestRoots installs the packages by apt in bare Debians of this machine's architecture, where DKMS compiles the module,
// and the package tegracast in those of arm64, whose programs QEMU runs. In each, doctor names packages that are there,
// the release's systemd takes the units, and the program streams what the release has libraries for. In QEMU 7.2 apt of
// Debian 13 does not end, so that runs in its own QEMU.
func TestRoots(t *testing.T) {
	needsLong(t)
	source, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	debs, archs := t.TempDir(), slices.Compact([]string{runtime.GOARCH, "arm64"})
	if err := run(source, debs, "0.2.0", archs, false); err != nil {
		t.Fatal(err)
	}
	for _, d := range debianReleases {
		for _, arch := range archs {
			t.Run(d.suite+"-"+arch, func(t *testing.T) {
				qemu := ownQEMU
				if d.suite == "trixie" && arch != runtime.GOARCH {
					qemu = newerQEMU(t)
				}
				if out, err := (debianRoot{"/", arch, qemu}).inside(t, "true").CombinedOutput(); err != nil {
					t.Skipf("NEEDS Linux 6.7 and qemu-user-static for programs of %s: %v: %s", arch, err, out)
				}
				r := debian(t, "debian"+d.version, d.suite, arch, "systemd,udev", qemu)
				if err := os.CopyFS(filepath.Join(r.dir, "srv"), os.DirFS(debs)); err != nil {
					t.Fatal(err)
				}
				must(t, r.inside(t, "apt-get -qq update"))
				d.remedies(t, r)
				d.installs(t, r)
				d.runsUnits(t, r)
				d.streams(t, r)
			})
		}
	}
}

// newerQEMU returns the path of the static QEMU for programs of arm64 that Debian 13 has.
func newerQEMU(t *testing.T) string {
	t.Helper()
	r := debian(t, "debian13", "trixie", runtime.GOARCH, "systemd,udev", ownQEMU)
	must(t, r.inside(t, "apt-get -qq update && cd /srv && apt-get -qq -o APT::Sandbox::User=root download qemu-user && dpkg-deb -x qemu-user_*.deb qemu"))
	return r.dir + "/srv/qemu/usr/bin/qemu-aarch64"
}

// must returns a command's standard output. The test ends if it fails.
func must(t *testing.T, c *exec.Cmd) string {
	t.Helper()
	var said strings.Builder
	c.Stderr = &said
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", c.Args[len(c.Args)-1], err, out, &said)
	}
	return string(out)
}

// A finding of doctor.
type finding struct{ What, Grade, Detail, Command string }

// libraries returns what a program's doctor says of the release's libraries.
func (d debianRelease) libraries(t *testing.T, r debianRoot, program string) (list []finding) {
	t.Helper()
	var said struct{ Findings []finding }
	if err := json.Unmarshal([]byte(must(t, r.alone(t, program+" doctor --json || [ $? = 1 ]"))), &said); err != nil {
		t.Fatal(err)
	}
	for _, f := range said.Findings {
		if _, ok := d.packages[f.What]; ok {
			list = append(list, f)
		}
	}
	if len(list) != len(d.packages) {
		t.Fatalf("doctor says of libraries %v", list)
	}
	return list
}

// remedies checks that doctor names the libraries' packages, which apt must have, before the package is installed.
func (d debianRelease) remedies(t *testing.T, r debianRoot) {
	t.Helper()
	must(t, r.inside(t, "dpkg-deb -x /srv/tegracast_*_"+r.arch+".deb /srv/unpacked"))
	for _, f := range d.libraries(t, r, "/srv/unpacked/usr/bin/tegracast") {
		name := d.packages[f.What]
		if name == "" {
			if want := "Debian " + d.version + " has no package of " + f.What; f.Command != "" || !strings.Contains(f.Detail, want) {
				t.Errorf("doctor: %+v, want %q", f, want)
			}
			continue
		}
		if f.Command != "apt-get install "+name {
			t.Errorf("doctor: %+v, want the package %s", f, name)
			continue
		}
		must(t, r.inside(t, f.Command+" --simulate -qq"))
	}
}

// installs installs the packages with what they recommend, which is all that the release has for them.
func (d debianRelease) installs(t *testing.T, r debianRoot) {
	t.Helper()
	const get = "cd /srv && apt-get -qq -y -o Dpkg::Use-Pty=0 install "
	if r.arch == runtime.GOARCH {
		must(t, r.inside(t, get+"--no-install-recommends dkms linux-headers-"+r.arch))
		must(t, r.inside(t, get+"./tegracast_*_"+r.arch+".deb ./tegracast-dkms_*.deb"))
		const module = `set -- /lib/modules/*/updates/dkms/tegra_p2p.ko* && [ $# = 1 ] && modinfo -F vermagic "$1" && dkms status`
		said := must(t, r.inside(t, module))
		if magic, status, _ := strings.Cut(said, "\n"); !strings.Contains(status, strings.Fields(magic)[0]) || !strings.HasSuffix(status, ": installed\n") {
			t.Errorf("the module is for %q, and DKMS says %q", magic, status)
		}
	} else {
		must(t, r.inside(t, get+"./tegracast_*_"+r.arch+".deb"))
	}
	for _, f := range d.libraries(t, r, "tegracast") {
		if (f.Grade == "good") != (d.packages[f.What] != "") {
			t.Errorf("installed with its Recommends, doctor says %+v", f)
		}
	}
}

// runsUnits checks that the release's systemd takes the units, and has made the user and its folder.
func (d debianRelease) runsUnits(t *testing.T, r debianRoot) {
	t.Helper()
	const verify = "systemctl --version | head -n 1; systemd-analyze verify --man=no tegracast.service tegracast-devices.service 2>&1"
	if said := must(t, r.alone(t, verify)); !strings.HasPrefix(said, "systemd "+d.systemd+" ") || strings.Contains(said, "tegracast") {
		t.Errorf("systemd of Debian %s: %s", d.version, said)
	}
	const made = "for g in gpio video render; do id -nG tegracast | grep -cw $g; done; stat -c %U:%a /var/lib/tegracast/faults"
	if said := must(t, r.inside(t, made)); said != "1\n1\n1\ntegracast:755\n" {
		t.Errorf("the user's groups gpio, video and render, and its folder: %q", said)
	}
}

const (
	rootYAML = `rtsp: {listen: none}
web: {listen: none}
sources: [{name: camera, slots: 16, model: {width: 320, height: 240, rate: 5}}]
isp: [{name: isp, workers: 1}]
outputs:
- {name: raw, rtp: {payload: raw, checksum: true, destinations: ["127.0.0.1:5004"]}}
- {name: jpeg, rtp: {payload: jpeg, checksum: true, destinations: ["127.0.0.1:5006"]}}
`
	h264YAML = `- {name: h264, rtp: {payload: h264, destinations: ["127.0.0.1:5008"]}}` + "\n"
	ucxYAML  = `- {name: samples, ucx: {listen: "127.0.0.1:5020"}}` + "\n"
)

// receive begins to receive what serve sends. In QEMU 7.2 recvmsg without a buffer returns 0 each time, so that a sender
// never ends reading the errors of a socket whose receiver is not there. So one serve writes the descriptions, and
// another sends once probe listens.
const receive = `cd /srv
serve() {
	rm -f log
	tegracast serve --config c.yaml --sdp-dir . >log 2>&1 & pid=$!
	until grep -qs "source streaming" log; do kill -0 $pid || { cat log >&2; exit 1; }; sleep .1; done
}
serve
kill -9 $pid; wait $pid
tegracast probe --json --duration 10s $names >probed & probe=$!
until [ "$(grep -c -e :138C -e :138E -e :1390 /proc/net/udp)" = $ports ]; do kill -0 $probe || exit 1; sleep .1; done
serve
`

// streams serves every payload that the release has a library for, and receives the streams. The others are refused.
func (d debianRelease) streams(t *testing.T, r debianRoot) {
	t.Helper()
	yaml, names := rootYAML, "raw.sdp jpeg.sdp"
	if d.packages["openh264"] == "" {
		d.refuses(t, r, "openh264", rootYAML+h264YAML)
	} else {
		yaml, names = yaml+h264YAML, names+" h264.sdp"
	}
	want, samples := len(strings.Fields(names)), ""
	if d.packages["UCX"] == "" {
		d.refuses(t, r, "UCX", rootYAML+ucxYAML)
	} else {
		yaml, want, samples = yaml+ucxYAML, want+1, "tegracast receive --json --duration 5s --ucx 127.0.0.1:5020 --stream samples || [ $? = 1 ]; "
	}
	writeConfig(t, r, yaml)
	line := fmt.Sprintf("names='%s' ports=%d\n", names, len(strings.Fields(names))) + receive + samples + "wait $probe || [ $? = 1 ]; cat probed"
	said := json.NewDecoder(strings.NewReader(must(t, r.alone(t, line))))
	for range want {
		var got received
		if err := said.Decode(&got); err != nil {
			t.Fatalf("of %d streams: %v", want, err)
		}
		t.Logf("%+v", got)
		if got.Frames == 0 || got.Drops <= 0 && got.Damaged+got.Broken+got.Mismatched+got.CRCMismatched > 0 {
			log, _ := os.ReadFile(filepath.Join(r.dir, "srv/log"))
			t.Errorf("%+v\n%s", got, log)
		}
	}
}

// received has results of probe and receive. A machine that is too slow has Drops, which QEMU does not know.
type received struct {
	Stream, Verdict                     string
	Frames, Damaged, Broken, Mismatched int
	CRCMismatched                       int `json:"crc_mismatched"`
	Drops                               int `json:"receiver_drops"`
}

// writeConfig writes a configuration to /srv/c.yaml.
func writeConfig(t *testing.T, r debianRoot, yaml string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, "srv/c.yaml"), []byte(yaml), 0o644); err != nil {
		t.Fatal(err)
	}
}

// refuses checks that serve refuses an output whose library the release lacks, with what to do.
func (d debianRelease) refuses(t *testing.T, r debianRoot, library, yaml string) {
	t.Helper()
	writeConfig(t, r, yaml)
	out, err := r.alone(t, "exec tegracast serve --config /srv/c.yaml").CombinedOutput()
	if want := "Debian " + d.version + " has no package of " + library + " that is new enough: "; err == nil || !strings.Contains(string(out), want) {
		t.Errorf("serve: %v\n%s\nwant %q", err, out, want)
	}
}
