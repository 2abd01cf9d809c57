// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// A cell of BenchmarkStall takes stallCell. Every stallEvery the thread that sends is stopped for stallTime. A frame is
// late if its last packet comes more than stallLate after the sensor's last line.
const (
	stallCell  = 20 * time.Second
	stallEvery = 2 * time.Second
	stallTime  = 40 * time.Millisecond
	stallLate  = time.Millisecond
)

const stallYAML = `
memory: %s
web: {listen: none}
sources:
  - name: camera
    model: {width: %d, height: %d, rate: %d, readout: %v, replay: %s}
isp: [{name: isp, device: %s}]
outputs:
  - {name: raw, latency: slice, rtp: {payload: raw, destinations: ["127.0.0.1:%d"], mtu: %d, capture_time: true, checksum: true}}
`

// BenchmarkStall measures after how many frames a stream of slices has caught up when the thread that sends was stopped
// for 40 ms, and how late the last packets of all other frames are. The kernel timestamps the packets. It uses a GPU if
// TEGRACAST_GPU is set. The program TEGRACAST_BEFORE, if set, takes turns with the one under test. A thread that sleeps a
// millisecond at a time measures the machine's own stalls. It checks nothing.
func BenchmarkStall(b *testing.B) {
	programs := map[string]string{"now": programtest.Program(b), "before": os.Getenv("TEGRACAST_BEFORE")}
	for round := range 3 {
		for _, c := range []stallStream{{1920, 1080, 60, 1500}, {3840, 2160, 60, 9000}, {7680, 4320, 30, 9000}} {
			for _, name := range []string{"before", "now"} {
				if programs[name] == "" {
					continue
				}
				b.Run(fmt.Sprintf("%dp%d-%s-%d", c.height, c.rate, name, round+1), func(b *testing.B) {
					for range b.N {
						c.measure(b, programs[name])
					}
				})
			}
		}
	}
}

type stallStream struct{ width, height, rate, mtu int }

// sentFrame records when a frame began in the sensor, and the delay from its last line to its last packet.
type sentFrame struct {
	began time.Time
	late  time.Duration
}

func (c stallStream) measure(b *testing.B, program string) {
	dir, port := b.TempDir(), rtptest.EvenPorts(b, 1)[0]
	period := time.Second / time.Duration(c.rate)
	readout, exposure := period*9/10, min(period/2, 10*time.Millisecond) // the exposure is the model's default
	replay := programtest.Write(b, "black.raw", "")
	if err := os.Truncate(replay, int64(2*c.width*c.height)); err != nil {
		b.Fatal(err)
	}
	device := [2]string{"host", "cpu"}
	if os.Getenv("TEGRACAST_GPU") != "" {
		device = [2]string{"cuda", "cuda"}
	}
	conn := listenStamped(b, port, &unix.SockFprog{Len: uint16(len(markers)), Filter: &markers[0]})
	text := fmt.Sprintf(stallYAML, device[0], c.width, c.height, c.rate, readout, replay, device[1], port, c.mtu)
	serve := programtest.Start(b, program, "serve", "--config", programtest.Write(b, "c.yaml", text), "--sdp-dir", dir)
	programtest.Await(b, filepath.Join(dir, "raw.sdp"))
	time.Sleep(2 * time.Second)
	end := time.Now().Add(stallCell)
	var all sync.WaitGroup
	var stalls []time.Time
	var frames []sentFrame
	var own []time.Duration
	all.Go(func() { stalls = plantStalls(b, serve.Process.Pid, end) })
	all.Go(func() { own = ownStalls(end) })
	all.Go(func() { frames = receiveMarkers(conn, exposure, readout, end) })
	all.Wait()
	serve.Stop(b)
	c.report(b, frames, stalls, own)
	b.Log(strings.Join(regexp.MustCompile(`(?m)^(?:camera|isp|raw)[: ].*$`).FindAllString(serve.Out.String(), -1), "\n"))
}

// plantStalls repeatedly stops the thread that sends, and returns when it continued.
func plantStalls(b *testing.B, pid int, end time.Time) (at []time.Time) {
	runtime.LockOSThread() // only the thread that has seized another may release it
	defer runtime.UnlockOSThread()
	names, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", pid))
	i := slices.IndexFunc(names, func(file string) bool {
		name, _ := os.ReadFile(file)
		return strings.TrimSpace(string(name)) == "rtp-sender"
	})
	if i < 0 {
		b.Error("no thread sends")
		return nil
	}
	tid, _ := strconv.Atoi(filepath.Base(filepath.Dir(names[i])))
	for time.Until(end) > stallEvery {
		time.Sleep(stallEvery)
		if err := unix.PtraceSeize(tid); err != nil {
			b.Errorf("the thread cannot be stopped: %v", err)
			return at
		}
		var status unix.WaitStatus
		err := unix.PtraceInterrupt(tid)
		if err == nil {
			_, err = unix.Wait4(tid, &status, unix.WALL, nil)
		}
		time.Sleep(stallTime)
		if e := unix.PtraceDetach(tid); cmp.Or(err, e) != nil {
			b.Errorf("the thread was not stopped, or does not go on: %v, %v", err, e)
			return at
		}
		at = append(at, time.Now())
	}
	return at
}

// ownStalls returns how late a sleeping thread woke up.
func ownStalls(end time.Time) (late []time.Duration) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for time.Now().Before(end) {
		begin := time.Now()
		_ = unix.Nanosleep(&unix.Timespec{Nsec: int64(time.Millisecond)}, nil)
		late = append(late, time.Since(begin)-time.Millisecond)
	}
	slices.Sort(late)
	return late
}

// receiveMarkers receives the last packets of frames.
func receiveMarkers(conn *net.UDPConn, exposure, readout time.Duration, end time.Time) (list []sentFrame) {
	packet, control := make([]byte, 10000), make([]byte, 64)
	_ = conn.SetReadDeadline(end)
	for {
		n, oob, _, _, err := conn.ReadMsgUDP(packet, control)
		if err != nil {
			return list
		}
		if at, exposed, ok := stamps(packet[:n], control[:oob]); ok {
			list = append(list, sentFrame{exposed, at.Sub(exposed.Add(exposure + readout))})
		}
	}
}

// report reports the number of frame periods from the first late frame after a stall to the next one in time, and the
// lateness of the frames outside stalls.
func (c stallStream) report(b *testing.B, frames []sentFrame, stalls []time.Time, own []time.Duration) {
	var again []int
	var rest []time.Duration
	period := time.Second / time.Duration(c.rate)
	next := 0
	for _, at := range stalls {
		touched := func(f sentFrame) bool { return f.began.Add(period).After(at.Add(-stallTime - period)) }
		for ; next < len(frames) && !touched(frames[next]); next++ {
			rest = append(rest, frames[next].late)
		}
		for ; next < len(frames) && frames[next].late <= stallLate && frames[next].began.Before(at); next++ {
		}
		first := next
		for ; next < len(frames) && frames[next].late > stallLate; next++ {
		}
		if next < len(frames) && first < next {
			again = append(again, int(frames[next].began.Sub(frames[first].began).Round(period)/period))
		}
	}
	for _, f := range frames[next:] {
		rest = append(rest, f.late)
	}
	slices.Sort(again)
	slices.Sort(rest)
	if len(again) == 0 || len(rest) == 0 || len(own) == 0 {
		b.Fatalf("%d frames, %d stalls: nothing was measured", len(frames), len(stalls))
	}
	b.ReportMetric(float64(again[len(again)/2]), "frames-to-level")
	b.ReportMetric(float64(again[len(again)-1]), "frames-to-level-max")
	b.ReportMetric(float64(rest[len(rest)/2])/1e6, "ms-p50")
	b.ReportMetric(float64(rest[len(rest)*99/100])/1e6, "ms-p99")
	b.ReportMetric(float64(own[len(own)*999/1000])/1e6, "ms-machine-p99.9")
	b.ReportMetric(float64(own[len(own)-1])/1e6, "ms-machine-max")
	b.ReportMetric(float64(len(frames)), "frames")
	b.ReportMetric(0, "ns/op")
}
