// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
)

// Private data of the machine of privateOrin, one of each kind.
const (
	privateHost   = "kitchen-orin-7"
	privateShort  = "muri"
	privateSerial = "1421121033223"
	privateMAC    = "3c:6d:66:76:71:f1"
	privateIPv4   = "192.168.42.101"
	privateIPv6   = "2001:db8:42::17"
	privatePerson = "Berta Beispiel"
	privateUUID   = "6f1e2b4c-0d7a-4f3e-9b1d-3c5a7e9f1b2d"
	privateMail   = "berta@example.org"
	privateKey    = "AAAAC3NzaC1lZDI1NTE5AAAAIKbertasownkey"
	privateCard   = "de ad be ef 01 02 03 04"
)

var allPrivate = []string{
	privateHost, privateShort, privateSerial, privateMAC, privateIPv4, privateIPv6, privatePerson, privateUUID, privateMail, privateKey, privateCard,
	strings.ToUpper(privateMAC), strings.ReplaceAll(privateMAC, ":", "-"), "Berta",
}

// privateOrin is an Orin with private data in its files, logs and card.
func privateOrin() fstest.MapFS {
	card := []byte(space(0x48, 1, 32, 2, 1))
	copy(card[0x100:], []byte{3, 0, 1, 0, 0xde, 0xad, 0xbe, 0xef, 1, 2, 3, 4}) // Device Serial Number
	return changed(map[string]string{
		"proc/sys/kernel/hostname": privateHost + "\n", "etc/hostname": privateHost + ".example.org\n", "proc/device-tree/serial-number": privateSerial + "\x00",
		"etc/passwd":                    "root:x:0:0:root:/root:/bin/bash\n" + privateShort + ":x:1000:1000:" + privatePerson + ",,,:/home/" + privateShort + ":/bin/bash\n",
		"proc/cmdline":                  "root=PARTUUID=" + privateUUID + " ip=" + privateIPv4 + " androidboot.serialno=" + privateSerial + "\n",
		"proc/version":                  "Linux version 5.15.148-tegra (" + privateMail + ") " + privateShort + "@" + privateHost + "\n",
		"etc/os-release":                "NAME=Ubuntu\nHOME_URL=http://" + privateHost + "/\n",
		"var/lib/dkms/tegra_p2p/1/x":    "",
		slot + "config":                 string(card),
		"proc/sys/net/core/wmem_max":    "212992\n",
		"proc/device-tree/chosen/bogus": privateSerial,
	})
}

const privateLog = "[    1.0] pci 0005:01:00.0: [10ee:9038] type 00 class 0x058000\n" +
	"[   23.1] r8168 0008:01:00.0 eth0: pci, " + privateMAC + ", IRQ 239, " + privateHost + "\n" +
	"[   24.1] nvgpu: Serial Number: " + "S4EVNX0R123456" + "\n" +
	"[   26.2] nfs: server " + privateIPv4 + " OK\n" +
	"[   27.3] pci: owned by " + privatePerson + "\n"

var privateJournal = "tegracast[1]: raw to " + privateIPv4 + ":5004 and [" + privateIPv6 + "]:5004, file /home/" + privateShort + "/chart.raw\n" +
	"tegracast[1]: " + privateKeyType + " " + privateKey + " " + privateMail + " " + strings.ToUpper(privateMAC) + " on 127.0.0.1:8080\n"

const privateKeyType = "ssh-ed25519"

// testReporter makes reports of an Orin given by files, with a short stream.
func testReporter(root fstest.MapFS, progress io.Writer) *reporter {
	facts := newRecorder(root)
	p := ofPatient(facts, usesNVP2P|protected)
	p.kernelLog = func() string { return privateLog }
	return &reporter{
		e: terminal.Env{Out: io.Discard, Err: progress}, p: p, facts: facts, private: newRedactor(root), stream: 300 * time.Millisecond, config: "/nowhere/tegracast.yaml",
		version: func(io.Writer) error { return nil },
		journal: func(context.Context) ([]byte, error) { return []byte(privateJournal), nil },
	}
}

// TestDoctorReport checks that the archive has all its parts, README.txt first, names the failures, and contains nothing
// private.
func TestDoctorReport(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.tar")
	var progress bytes.Buffer
	r := testReporter(privateOrin(), &progress)
	if err := r.write(t.Context(), file); err != nil || !r.ready {
		t.Fatalf("%v, ready %v\n%s", err, r.ready, &progress)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range append(allPrivate, "S4EVNX0R123456") {
		if i := bytes.Index(raw, []byte(word)); i >= 0 {
			t.Errorf("%q is in the report: %s", word, raw[max(0, i-60):min(len(raw), i+60)])
		}
	}
	texts, names := map[string]string{}, []string{}
	for archive := tar.NewReader(bytes.NewReader(raw)); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		b, readErr := io.ReadAll(archive)
		if err := errors.Join(err, readErr); err != nil {
			t.Fatal(err)
		}
		if h.Uname+h.Gname != "" || h.Uid+h.Gid != 0 || !h.ModTime.Equal(time.Unix(0, 0)) {
			t.Errorf("%+v", h)
		}
		name := strings.TrimPrefix(h.Name, "tegracast-report/")
		names, texts[name] = append(names, name), string(b)
	}
	if names[0] != "README.txt" || !slices.IsSorted(names[len(r.parts()):]) {
		t.Errorf("order: %q", names)
	}
	for name, want := range map[string]string{
		"README.txt": "stream-camera.txt", "doctor.txt": "ready for a camera", "doctor.json": `"ready": true`, "versions.txt": "R36 (release), REVISION: 4.3", "module.txt": "NIRQs:4",
		"pins.txt": "failed: ", "loopback-model.json": `"wrong": 0`, "loopback-host.json": "failed: ", "loopback-cuda.json": "failed: ", "stream-camera.txt": "failed: ",
		"stream-model.txt": "camera: captured ", "kernel.txt": "pci 0005:01:00.0: [10ee:9038]", "journal.txt": "on 127.0.0.1:8080",
		"facts/" + slot + "config": "000: 00 00 00", "facts/" + slot + "driver": "-> ../../../bus/pci/drivers/tegra_p2p", "facts/proc/cmdline": "root=PARTUUID=<uuid> ip=<address>",
		"facts/proc/device-tree/model": "NVIDIA Jetson AGX Orin Developer Kit", "facts/" + secureBoot: "000: 06 00 00 00 00",
	} {
		if !strings.Contains(texts[name], want) {
			t.Errorf("%s lacks %q:\n%s", name, want, texts[name])
		}
	}
	if !strings.Contains(texts["README.txt"], "failed: ") || strings.Count(texts["stream-model.txt"], "pixels      CRC right") != 2 {
		t.Errorf("%s\n%s", texts["README.txt"], texts["stream-model.txt"])
	}
	if strings.Contains(texts["stream-model.txt"], "failed: ") {
		t.Error(texts["stream-model.txt"])
	}
	if strings.Contains(texts["kernel.txt"], "nfs") {
		t.Error("kernel.txt has lines that are not about the FPGA")
	}
	if !strings.Contains(progress.String(), "stream-model.txt: 0.3 s of the FPGA model's camera") {
		t.Errorf("no progress: %s", &progress)
	}
}

// TestDoctorReportFile checks that an existing file is kept, a missing folder is reported at once, and an interrupted
// report leaves no file.
func TestDoctorReportFile(t *testing.T) {
	dir := t.TempDir()
	there := filepath.Join(dir, "there.tar")
	if err := os.WriteFile(there, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{there: "the file exists", filepath.Join(dir, "nowhere", "x.tar"): "can be written to"} {
		var usage terminal.UsageError
		if err := testReporter(orin(), io.Discard).write(t.Context(), file); !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", file, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := testReporter(orin(), io.Discard)
	r.journal = func(context.Context) ([]byte, error) { cancel(); return nil, nil }
	if err := r.write(ctx, filepath.Join(dir, "cut.tar")); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	list, err := os.ReadDir(dir)
	if b, readErr := os.ReadFile(there); err != nil || readErr != nil || len(list) != 1 || string(b) != "mine" {
		t.Errorf("%v %v: %v, %q", err, readErr, list, b)
	}
}

// TestRedactorRemoves covers private data in the forms found in logs and configurations.
func TestRedactorRemoves(t *testing.T) {
	r := newRedactor(fstest.MapFS{
		"etc/hostname": {Data: []byte("cam7\n")}, "sys/class/net/eth0/address": {Data: []byte("48:b0:2d:11:22:33\n")},
		"sys/class/net/lo/address": {Data: []byte("00:00:00:00:00:00\n")},
	})
	for text, want := range map[string]string{
		"cam7_front, cam7Front, CAM7-1 cam7_cam7, xcam7, cam70":    "<host>_front, <host>Front, <host>-1 <host>_<host>, xcam7, cam70",
		"https://media.example/whip/v1 https://[2001:db8::1]:1/x":  "https://<host>/whip/v1 https://<host>:1/x",
		"rtsp://me:p!ss@media.example:8554/live, nats://bus:4222":  "rtsp://<user>@<host>:8554/live, nats://<host>:4222",
		"rtsp://me:p/s@s?@media/live user:p!ss@host.":              "rtsp://<user>@<host>/live <user>@<host>",
		"http://127.0.0.1:8080/x http://localhost:1 http://[::1]/": "http://127.0.0.1:8080/x http://localhost:1 http://[::1]/",
		"Authorization: Bearer abc.def-1~x bearer sesame":          "Authorization: Bearer <secret> bearer <secret>",
		`"authorization":"Basic bWU6cGFzcw==" token=sesame&x=1`:    `"authorization":"Basic <secret>" token=<secret>&x=1`,
		"3c6d667671f1 enx3c6d667671f1 3C6D.6676.71F1 123456789012": "<mac> <mac> <mac> 123456789012",
		"x48b02d112233y 48-b0-2d-11-22-33":                         "x<mac>y <mac>",
	} {
		if got := r.clean(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

// TestRedactorLeaves checks that data about the machine's model and its bus stay.
func TestRedactorLeaves(t *testing.T) {
	r := newRedactor(fstest.MapFS{"etc/hostname": {Data: []byte("ubuntu\n")}, "proc/sys/kernel/hostname": {Data: []byte("tegra")}})
	for _, text := range []string{
		"tegra194-pcie 141a0000.pcie: Phy link never came up", "pci 0005:01:00.0: BAR 0 [mem 0x2b28000000-0x2b280fffff]", "pci_bus 0005:00", "14:09:38",
		"127.0.0.1:8080", "[::1]:5004", "std::string", "5.15.148-tegra", "NVIDIA", "36.4.3", "R36 (release), REVISION: 4.3, GCID: 38968081",
		"bus@0: pcie@141a0000: probed", "[mem 0x2b2800000000-0x2b280fffffff 64bit pref]", "password_file: /etc/tegracast/x", "main.go:12",
	} {
		if got := r.clean(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// FuzzRedactor checks that addresses and names are removed in any context.
func FuzzRedactor(f *testing.F) {
	f.Add("eth0: ", ", IRQ 239", []byte{3, 0, 1, 0x10})
	f.Add("", "", []byte{})
	r := newRedactor(privateOrin())
	f.Fuzz(func(t *testing.T, before, after string, config []byte) {
		for _, word := range []string{privateHost, privateSerial, privatePerson} {
			if got := r.clean(before + word + after); strings.Contains(got, word) {
				t.Errorf("%q", got)
			}
		}
		if got := r.clean(before + " " + privateMAC + " " + after); strings.Contains(got, privateMAC) {
			t.Errorf("%q", got)
		}
		for _, x := range []struct{ text, secret string }{
			{"rtsp://me:s3same!@media.example:8554/live", "s3same"},
			{"https://secret-host.example/whip", "secret-host"},
			{"me:s3same!@h", "s3same"},
			{"Bearer s3same", "s3same"},
			{"token=s3same", "s3same"},
			{"3c6d667671f1", "3c6d667671f1"},
		} {
			if strings.Contains(before+after, x.secret) {
				continue
			}
			if got := r.clean(before + " " + x.text + " " + after); strings.Contains(got, x.secret) {
				t.Errorf("%q is in %q", x.secret, got)
			}
		}
		configText(config)
	})
}
