// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tegracast/tegracast/board/vjetson"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/pipeline/record"
)

const cutConfig = `
sources: [{name: camera, fpga: {device: /dev/tegra_p2p0, width: 320, height: 240, rate: 12}}]
isp: [{name: isp}]
outputs:
  - {name: kept, from: camera, policy: block, record: {directory: /mnt, sync: 300ms%s}}
  - {name: film, policy: block, scale: half, rtp: {payload: jpeg}, record: {directory: /mnt, duration: 3s, sync: 300ms}}
`

const cutTrigger = ", trigger: {before: 1s, after: 1h}"

// watchSyncs repeatedly prints how many frames are certain to be on the disk: those written before the start of a
// completed sync of the recording kept, which has one sync at a time. It also prints how many pictures are in the
// recording film, of which the newest fragment may not be synced. With an argument it triggers kept when that has dropped
// some frames, and prints the maximum number of frames before the trigger.
const watchSyncs = `
count() { sed -n "s/^$1 //p" /run/metrics; }
metrics() { wget -q -O /run/metrics http://127.0.0.1:8080/metrics 2>/dev/null; n=$(count 'tegracast_output_frames_total{output="kept"}'); }
syncs() {
	fds=" $(ls -l /proc/$serve/fd | sed -n 's|.* \([0-9]*\) -> /mnt/kept.*|\1|p' | while read fd; do printf '%x) ' $fd; done)"
	awk -v fds="$fds" '/sys_fdatasync\(/ {kept[$1] = index(fds, " " $NF " "); begun += kept[$1] > 0}
		/sys_fdatasync -> 0x0/ {ended += kept[$1] > 0} END {print '$1' + 0}' trace
}
cd /sys/kernel/debug/tracing || exit 1
for e in enter exit; do echo 1 > events/syscalls/sys_${e}_fdatasync/enable || exit 1; done
tegracast serve --config /run/cut.yaml --sdp-dir /run >/run/serve.log 2>&1 &
serve=$!
if [ -n "$1" ]; then
	until metrics; [ "${n:-0}" -ge 40 ]; do kill -0 $serve || break; usleep 100000; done
	wget -q -O /dev/null --header "Authorization: Bearer $(cat /root/.local/state/tegracast/web.token)" --post-data= \
		http://127.0.0.1:8080/record/kept/trigger || exit 1
	metrics; echo triggered $n
fi
while kill -0 $serve; do
	metrics
	film=$(count 'tegracast_recording_frames_total{output="film"}')
	begun=$(syncs begun)
	until [ $(syncs ended) -gt $begun ]; do kill -0 $serve || break; usleep 20000; done
	[ -z "$n" ] || echo film $film synced $n
done; cat /run/serve.log; exit 1`

// TestPowerCuts cuts the power of the virtual Jetson while it records to a disk with a volatile write cache, which loses
// a random part of the unflushed sectors. After the next boot two readers must find every frame that was written before
// the last sync in each recording, as sent by the camera, and verify must find where it ends. Every other recording is
// one around a trigger, with the frames written since. The machine also records pictures as MP4: see filmAfterCut.
func TestPowerCuts(t *testing.T) {
	if !longRun {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make test-long)")
	}
	disk := newDisk(t, 1<<30)
	g := buildGuest(t, "arm64")
	cfg := vjetson.Config{Functions: []string{newEndpoint(t, messages, false).Path()}, Disk: disk, DiskCache: true}
	camera := newSensor(t, 320, 240, false)
	synced, film, lost := 0, 0, 0
	for i := range 11 {
		t.Run(fmt.Sprint("boot ", i), func(t *testing.T) {
			m, trigger := g.boot(t, cfg), ""
			if i%2 == 1 {
				trigger = cutTrigger
			}
			if err := m.CopyIn(t.Context(), programtest.Write(t, "cut.yaml", fmt.Sprintf(cutConfig, trigger)), "/run/cut.yaml"); err != nil {
				t.Fatal(err)
			}
			if out, err := m.Shell(t.Context(), "mkdir -p /mnt && mount -t ext4 /dev/vda /mnt"); err != nil {
				t.Fatal(err, out)
			}
			if i > 0 {
				afterCut(t, m, camera, synced)
				filmAfterCut(t, m, film)
			}
			if i == 10 {
				return
			}
			synced, film = cutWhileRecording(t, m, trigger)
			l, kept := m.CacheLost()
			lost += l
			t.Logf("cut: %d frames and %d pictures were synced; the disk lost %d sectors of the %d in its cache", synced, film, l, l+kept)
		})
	}
	if lost == 0 {
		t.Error("the power cuts have lost nothing: nothing was tested")
	}
}

// cutWhileRecording returns how many frames, or how many after the trigger, and how many pictures of the film were
// certain to be on the disk when the power was cut.
func cutWhileRecording(t *testing.T, m *vjetson.Machine, trigger string) (synced, film int) {
	t.Helper()
	var said syncLog
	ended := make(chan error, 1)
	go func() {
		_, err := m.RunTo(t.Context(), &said, io.Discard, "sh", "-c", watchSyncs, "sh", trigger)
		ended <- err
	}()
	for began := time.Now(); said.synced(trigger) < 5 || said.film() < 5; time.Sleep(50 * time.Millisecond) {
		select {
		case err := <-ended:
			t.Fatalf("the recording has ended: %v\n%s", err, said.b.String())
		default:
		}
		if time.Since(began) > 3*time.Minute {
			log, _ := m.Shell(t.Context(), "cat /run/serve.log; tail -5 /sys/kernel/debug/tracing/trace; ls -l /mnt")
			t.Fatalf("no 5 frames were synced\n%s", log)
		}
	}
	time.Sleep(time.Duration(rand.IntN(4000)) * time.Millisecond)
	if err := m.PowerCut(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-ended
	return said.synced(trigger), said.film()
}

// syncLog collects the machine's output.
type syncLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *syncLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// synced returns the number in the last line. With a trigger it counts from there.
func (l *syncLog) synced(trigger string) int {
	synced := l.last("synced ")
	if trigger == "" || synced == 0 {
		return synced
	}
	return synced - l.last("triggered ")
}

// film returns how many pictures of the film are synced: those before its newest fragment, since a fragment is synced
// before the next one is written.
func (l *syncLog) film() (synced int) {
	newest := 0
	for _, n := range l.all("film ") {
		if n > newest {
			synced, newest = newest, n
		}
	}
	return synced
}

// last returns the number after the last occurrence of a word.
func (l *syncLog) last(word string) int {
	all := l.all(word)
	if len(all) == 0 {
		return 0
	}
	return all[len(all)-1]
}

// all returns the numbers after each occurrence of a word in whole lines.
func (l *syncLog) all(word string) (list []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	whole := l.b.String()
	for _, part := range strings.Split(whole[:strings.LastIndexByte(whole, '\n')+1], word)[1:] {
		n := 0
		_, _ = fmt.Sscan(part, &n) // the script prints a number
		list = append(list, n)
	}
	return list
}

// afterCut checks the recording that the power cut has ended, of which a number of frames were synced, and deletes it.
func afterCut(t *testing.T, m *vjetson.Machine, camera *model.Sensor, synced int) {
	t.Helper()
	path := takeOut(t, m, "/mnt", record.Extension)[0]
	frames, err := asSent(t, path, camera)
	if len(frames) < synced {
		t.Errorf("the format's own reader has %d frames, %d were synced: %v", len(frames), synced, err)
	}
	r, err := record.Inspect(t.Context(), path, true, func(float64) {})
	if err != nil {
		t.Fatal(err)
	}
	if r.Finished || r.Checked < synced || r.Traced < r.Checked || r.Readable > r.Bytes {
		t.Errorf("%d frames were synced: %+v", synced, r)
	}
	_, said, _ := runs(t, "record", "verify", path)
	if !strings.Contains(said, fmt.Sprintf("not finished: %d of %d bytes are whole", r.Readable, r.Bytes)) && !strings.Contains(said, "DAMAGED: "+r.Trouble) {
		t.Errorf("verify does not say where the recording ends:\n%s", said)
	}
	out := filepath.Join(t.TempDir(), "played.mcap")
	runs(t, "record", "export", path, "-o", out)
	played, err := asSent(t, out, camera)
	if err != nil || len(played) != r.Checked {
		t.Errorf("%d frames play, %d are whole: %v", len(played), r.Checked, err)
	}
	t.Logf("%d frames were synced, %d are there\n%s", synced, r.Checked, said)
}

// takeOut moves the recordings in a folder to this host. A recording with a trigger is renamed at the trigger, and its
// earlier name may still exist.
func takeOut(t *testing.T, m *vjetson.Machine, dir, extension string) (paths []string) {
	t.Helper()
	names, err := m.Shell(t.Context(), "ls "+dir+"/*"+extension)
	if err != nil {
		t.Fatal(err, names)
	}
	folder := t.TempDir()
	for name := range strings.FieldsSeq(names) {
		path := filepath.Join(folder, filepath.Base(name))
		if err := m.CopyOut(t.Context(), name, path); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	if out, err := m.Shell(t.Context(), "rm "+dir+"/*"+extension); err != nil {
		t.Fatal(err, out)
	}
	return paths
}
