// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/board/vjetson"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/pipeline/record"
)

// diskFaultConfig records to the disk, seven frames per file, and to memory.
const diskFaultConfig = `
web: {listen: "127.0.0.1:8080"}
sources: [{name: camera, fpga: {device: /dev/tegra_p2p0, width: 320, height: 240, rate: 12}}]
outputs:
  - {name: kept, from: camera, policy: block, record: {directory: /mnt, size: 1MB, sync: 300ms, when_full: %s}}
  - {name: other, from: camera, policy: block, record: {directory: /run/other}}
`

// newDisk makes an image with ext4.
func newDisk(t *testing.T, size int64) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("/sbin/mkfs.ext4", "-q", path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return path
}

// diskFault is a fault of the disk during a recording, caused by a command in the machine.
type diskFault struct {
	name, policy string
	before       string // before the recording begins
	then         string
	error        string // that ends the recording; "": none
	noise        string // lines of the kernel that are no fault
	after        string // before the recording is read
}

// unmount waits, because the kernel may close a ring's files after the process that had the ring has ended (io_uring(7)).
const unmount = "for i in $(seq 100); do umount /mnt && break; usleep 100000; done"

var diskFaults = []diskFault{
	{
		name: "full", policy: "stop", before: "dd if=/dev/zero of=/mnt/ballast bs=1M count=50", // 3.7 MB are free
		error: "the disk is full",
	},
	{name: "full, and the oldest files go", policy: "delete_oldest"},
	{
		name: "read-only", policy: "stop", before: "rm /mnt/ballast", then: "echo 1 > /sys/fs/ext4/vda/trigger_fs_error",
		error: "read-only file system", noise: `EXT4-fs`,
		after: unmount + "; mount -t ext4 -o errors=remount-ro /dev/vda /mnt",
	},
	{
		name: "removed", policy: "stop", then: "echo 1 > $(readlink -f /sys/block/vda/device/..)/remove",
		error: "error", noise: `EXT4-fs|JBD2|I/O error|Buffer I/O`,
		after: unmount + "; echo 1 > /sys/bus/pci/rescan; for i in $(seq 100); do [ -b /dev/vda ] && break; usleep 50000; done; mount -t ext4 /dev/vda /mnt",
	},
}

// TestDiskFaults records in the virtual Jetson to a disk that becomes full, becomes read-only after an error, or is
// removed. The recording must end with an error that says so, with complete files, and the camera and its other output
// must go on.
func TestDiskFaults(t *testing.T) {
	if !longRun {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make test-long)")
	}
	disk := newDisk(t, 64<<20)
	g := buildGuest(t, "arm64")
	m := g.boot(t, vjetson.Config{Functions: []string{newEndpoint(t, messages, false).Path()}, Disk: disk})
	must(t, m, "mkdir -p /mnt /run/other && mount -t ext4 -o errors=remount-ro /dev/vda /mnt && mount -t tmpfs -o size=48m none /run/other")
	camera := newSensor(t, 320, 240, false)
	for _, f := range diskFaults {
		if !t.Run(f.name, func(t *testing.T) { f.test(t, m, camera) }) {
			break
		}
	}
}

// must runs a command in the machine.
func must(t *testing.T, m *vjetson.Machine, line string) string {
	t.Helper()
	out, err := m.Shell(t.Context(), line)
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return out
}

func (f *diskFault) test(t *testing.T, m *vjetson.Machine, camera *model.Sensor) {
	if f.noise != "" {
		if _, err := m.Expect(f.noise); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.CopyIn(t.Context(), programtest.Write(t, "faults.yaml", fmt.Sprintf(diskFaultConfig, f.policy)), "/run/faults.yaml"); err != nil {
		t.Fatal(err)
	}
	must(t, m, "rm -f /mnt/*.mcap; "+f.before)
	must(t, m, "(tegracast serve --config /run/faults.yaml --sdp-dir /run >/run/serve.log 2>&1; echo $? > /run/status) &")
	failed := func(metrics string) bool {
		return strings.Contains(metrics, `tegracast_output_faults_total{output="kept"} `) && !strings.Contains(metrics, `tegracast_output_faults_total{output="kept"} 0`)
	}
	recorded := func(n int) func(string) bool {
		return func(metrics string) bool { return failed(metrics) || deliveredTo("kept", metrics) >= n }
	}
	await(t, m, recorded(15)) // its third file
	must(t, m, f.then)
	if f.error == "" {
		await(t, m, recorded(60))
	} else {
		await(t, m, failed)
	}
	now := deliveredTo("other", await(t, m, func(string) bool { return true }))
	metrics := await(t, m, func(metrics string) bool { return deliveredTo("other", metrics) >= now+12 })
	said := stopServing(t, m)
	if failed(metrics) != (f.error != "") || !strings.Contains(said, f.error) || strings.Contains(said, "output=other error") {
		t.Errorf("the recording ends with %q, want %q", said, f.error)
	}
	must(t, m, f.after)
	f.check(t, m, deliveredTo("kept", metrics), said)
	frames, err := asSent(t, takeOut(t, m, "/run/other", record.Extension)[0], camera)
	if err != nil || len(frames) < now+12 {
		t.Errorf("the other recording has %d frames: %v", len(frames), err)
	}
}

// check verifies the recording in the machine.
func (f *diskFault) check(t *testing.T, m *vjetson.Machine, delivered int, said string) {
	t.Helper()
	out := must(t, m, "tegracast record verify --json /mnt/*.mcap; true")
	frames, files, finished := 0, 0, 0
	for dec := json.NewDecoder(strings.NewReader(out)); dec.More(); files++ {
		var r record.Report
		if err := dec.Decode(&r); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if frames += r.Checked; r.Finished && r.Good() && r.Checked == r.Frames {
			finished++
		} else if len(r.Wrong) > record.Holds {
			t.Errorf("%+v", r)
		}
	}
	good := finished == files && frames == delivered && frames > 14
	switch {
	case f.error == "": // older files were deleted
		good = finished == files && frames > 7 && frames < 40
	case f.then != "": // a third file begins once the first one is on the disk
		good = finished > 0 && finished >= strings.Count(said, `msg="recording begins" output=kept`)-2
	}
	if !good {
		t.Errorf("%d frames were written; of %d files with %d frames %d are finished:\n%s\n%s", delivered, files, frames, finished, said, out)
	}
	t.Logf("%d frames were written; of %d files with %d frames %d are finished", delivered, files, frames, finished)
}

// await waits until done accepts the metrics, and returns them.
func await(t *testing.T, m *vjetson.Machine, done func(metrics string) bool) (metrics string) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		metrics, _ := m.Shell(t.Context(), "wget -q -O - http://127.0.0.1:8080/metrics 2>/dev/null")
		if metrics != "" && done(metrics) {
			return metrics
		}
		if time.Since(began) > 2*time.Minute {
			log, _ := m.Shell(t.Context(), "cat /run/serve.log; dmesg | tail; df; ls -l /mnt")
			t.Fatalf("it does not come so far:\n%s\n%s", metrics, log)
		}
	}
}
