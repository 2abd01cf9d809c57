// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// manySeconds is the measured time of a run of BenchmarkMany.
const manySeconds = 4

// BenchmarkMany measures the cost of each of several cameras: one process serves them all, each on its own card, at
// 1080p60 with a readout of 15 ms, and another receives all streams. It prints the CPU time per stream of the first
// process, including the FPGA's model, in percent: in total, and for the threads that send. If nothing is made from the
// frames ("camera"), that is the cost of the model and the capture. It checks nothing, and uses at most as many cameras
// as processors.
func BenchmarkMany(b *testing.B) {
	for _, mode := range []string{"camera", "frame", "slice"} {
		for n := 1; n <= min(16, runtime.NumCPU()); n *= 2 {
			b.Run(fmt.Sprintf("%s-%d", mode, n), func(b *testing.B) {
				for range b.N {
					measureMany(b, mode, n)
				}
			})
		}
	}
}

// manyYAML returns a configuration of n cameras, and the names of their outputs.
func manyYAML(mode string, ports []int) (text string, names []string) {
	sources, stages, outputs := "web: {listen: none}\nsources:\n", "isp:\n", "outputs:\n"
	for i, port := range ports {
		sources += fmt.Sprintf("  - {name: c%d, model: {rate: 60, width: 1920, height: 1080, readout: 15ms, seed: %d}}\n", i, i+1)
		stages += fmt.Sprintf("  - {name: i%d, from: c%d, device: cpu}\n", i, i)
		names = append(names, fmt.Sprintf("o%d", i))
		if mode == "camera" {
			outputs += fmt.Sprintf("  - {name: o%d, from: c%d, rtp: {payload: results, destinations: [\"127.0.0.1:%d\"]}}\n", i, i, port)
			continue
		}
		outputs += fmt.Sprintf("  - {name: o%d, from: i%d, latency: %s, rtp: {payload: raw, checksum: true, destinations: [\"127.0.0.1:%d\"]}}\n",
			i, i, mode, port)
	}
	return sources + stages + outputs, names
}

func measureMany(b *testing.B, mode string, n int) {
	dir := b.TempDir()
	text, names := manyYAML(mode, rtptest.EvenPorts(b, n))
	serve := programtest.StartProgram(b, "serve", "--config", programtest.Write(b, "c.yaml", text), "--sdp-dir", dir)
	receive := []string{"probe", "--json", "--duration", fmt.Sprintf("%ds", manySeconds+2)}
	for _, name := range names {
		path := filepath.Join(dir, name+".sdp")
		programtest.Await(b, path)
		receive = append(receive, "--sdp", path)
	}
	time.Sleep(time.Second) // the first frames fault in new memory
	probe := programtest.StartProgram(b, receive...)
	time.Sleep(time.Second)
	all, sending := threadTimes(b, serve.Process.Pid)
	begun := time.Now()
	time.Sleep(manySeconds * time.Second)
	all2, sending2 := threadTimes(b, serve.Process.Pid)
	share := 100 / time.Since(begun).Seconds() / float64(n)
	probe.Wait(b, time.Minute)
	serve.Stop(b)
	b.ReportMetric(share*(all2-all).Seconds(), "%cpu/stream")
	b.ReportMetric(share*(sending2-sending).Seconds(), "%sender/stream")
	b.ReportMetric(0, "ns/op")
	if mode != "camera" {
		reportStreams(b, &probe.Out)
	}
}

// reportStreams reports the output of a probe of several streams.
func reportStreams(b *testing.B, r io.Reader) {
	var sum struct {
		Frames, Damaged, Lost uint64
		Drops                 uint64 `json:"receiver_drops"`
		Matched               uint64 `json:"crc_matched"`
	}
	for d, one := json.NewDecoder(r), sum; ; {
		err := d.Decode(&one)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			b.Fatal(err)
		}
		sum.Frames += one.Frames
		sum.Damaged += one.Damaged
		sum.Lost += one.Lost
		sum.Drops += one.Drops
		sum.Matched += one.Matched
	}
	b.ReportMetric(float64(sum.Frames), "frames")
	b.ReportMetric(float64(sum.Frames-sum.Matched), "frames-without-CRC")
	b.ReportMetric(float64(sum.Damaged), "damaged")
	b.ReportMetric(float64(sum.Lost), "packets-lost")
	b.ReportMetric(float64(sum.Drops), "receiver-drops")
}

// threadTimes returns the run time of all threads of a process, and of those that send.
func threadTimes(b *testing.B, pid int) (all, sending time.Duration) {
	folders, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	for _, folder := range folders {
		name, err := os.ReadFile(filepath.Join(folder, "comm"))
		if err != nil {
			continue // the thread has ended
		}
		text, _ := os.ReadFile(filepath.Join(folder, "schedstat"))
		ran, _, _ := strings.Cut(string(text), " ")
		ns, err := strconv.ParseInt(ran, 10, 64)
		if err != nil {
			b.Fatalf("%s/schedstat: %q", folder, text)
		}
		all += time.Duration(ns)
		if strings.TrimSpace(string(name)) == "rtp-sender" {
			sending += time.Duration(ns)
		}
	}
	return all, sending
}
