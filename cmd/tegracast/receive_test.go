// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record"
	"github.com/tegracast/tegracast/pipeline/ucx/frames"
)

const ucxYAML = `
memory: host
web: {listen: none}
sources: [{name: camera, model: {width: 320, height: 240, rate: 20}}]
groups: [{name: one, sources: [camera]}]
isp: [{name: isp, white_balance: {red: 1.5, green: 1.0, blue: 1.1}}]
outputs:
  - {name: samples, from: camera, ucx: {listen: %[1]q}}
  - {name: pictures, from: isp, ucx: {listen: %[1]q}}
`

// freePort returns an unused address. Its port is not in the range that the kernel assigns automatically, as it does for
// UCX in each program: one of those could take it before serve does.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 20000+rand.IntN(12000))); err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

// listens waits until serve listens at an address, since a receiver gives up after its duration.
func listens(t *testing.T, serve *programtest.Process, at string) {
	t.Helper()
	var port int
	if _, err := fmt.Sscanf(at, "127.0.0.1:%d", &port); err != nil {
		t.Fatal(err)
	}
	listening := fmt.Sprintf(":%04X 00000000:0000 0A", port) // proc_net(5)
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(10 * time.Millisecond) {
		if text, err := os.ReadFile("/proc/net/tcp"); err == nil && strings.Contains(string(text), listening) {
			return
		}
	}
	_ = serve.Process.Kill()
	t.Fatalf("serve does not listen at %s: status %d\n%s", at, serve.Wait(t, time.Minute), serve.Err.String())
}

// over starts the program with UCX restricted to some transports.
func over(t *testing.T, transports string, args ...string) *programtest.Process {
	t.Helper()
	c := exec.Command(programtest.Program(t), args...)
	c.Env = append(os.Environ(), "UCX_TLS="+transports)
	if transports != "tcp" { // UCX then chooses its own route instead of the address's; pixels do not go through TCP's put
		c.Env = append(c.Env, "UCX_CM_USE_ALL_DEVICES=y", "UCX_TCP_PUT_ENABLE=n")
	}
	return programtest.StartCommand(t, c)
}

// received is the JSON that receive --json prints.
type received struct {
	Clean   bool
	Verdict string
	frames.ReceivedStats
}

// ends waits for a receiver, and reads its result.
func ends(t *testing.T, p *programtest.Process, status int) received {
	t.Helper()
	got := p.Wait(t, time.Minute)
	var r received
	if err := json.Unmarshal(p.Out.Bytes(), &r); err != nil || got != status {
		t.Errorf("status %d instead of %d, %v\n%s%s", got, status, err, p.Out.String(), p.Err.String())
	}
	return r
}

// TestReceive receives raw frames with the FPGA's CRC into a recording, and pictures and parts of them, over TCP and over
// shared memory.
func TestReceive(t *testing.T) {
	programtest.NotShort(t)
	for name, transports := range map[string]string{"tcp": "tcp", "shared memory": "posix,sysv,cma,tcp"} {
		t.Run(name, func(t *testing.T) { receiveOver(t, transports) })
	}
}

func receiveOver(t *testing.T, transports string) {
	dir, at := t.TempDir(), freePort(t)
	serve := over(t, transports, "serve", "--config", programtest.Write(t, "ucx.yaml", fmt.Sprintf(ucxYAML, at)))
	listens(t, serve, at)
	raw, whole, part := filepath.Join(dir, "raw.mcap"), filepath.Join(dir, "whole.y4m"), filepath.Join(dir, "part.y4m")
	list := []*programtest.Process{
		over(t, transports, "receive", "--json", "--duration", "3s", "--ucx", at, "--stream", "samples", "--save", raw),
		over(t, transports, "receive", "--json", "--duration", "3s", "--ucx", at, "--stream", "pictures", "--save", whole),
		over(t, transports, "receive", "--json", "--duration", "3s", "--ucx", at, "--stream", "pictures", "--save", part,
			"--every", "3", "--region", "64x32+100+50"),
	}
	complete := true // no frame was lost
	for _, p := range list {
		status := p.Wait(t, time.Minute)
		var r received
		if err := json.Unmarshal(p.Out.Bytes(), &r); err != nil {
			t.Fatalf("%v\n%s%s", err, p.Out.String(), p.Err.String())
		}
		traced := r.Traced == r.Matched
		if r.Frames == 0 || r.Matched != r.Frames || r.Mismatched+r.Unverified > 0 || traced != (r.Stream == "samples") {
			t.Errorf("%+v", r)
		}
		if r.Clean != (status == exitOK) {
			t.Errorf("status %d of %+v", status, r)
		}
		if !r.Clean || r.Missing > 0 {
			t.Logf("this machine is busy: %s: %s, lost %d, and %d at the camera", r.Stream, r.Verdict, r.Lost, r.Missing)
			complete = false
		}
		if !r.Clean && r.Lost == 0 {
			t.Errorf("not clean, and nothing is lost: %+v", r)
		}
	}
	serve.Stop(t)
	if status, out, errw := runs(t, "record", "verify", "--json", raw); status != exitOK {
		t.Errorf("status %d\n%s%s", status, out, errw)
	} else {
		var r record.Report
		if err := json.Unmarshal([]byte(out), &r); err != nil || r.Frames == 0 || r.Traced != r.Frames || r.Image.Width != 320 {
			t.Errorf("%v %+v", err, r)
		}
	}
	if b, err := os.ReadFile(raw); err != nil || !regexp.MustCompile(`"group":1\d{15}[,}]`).Match(b) {
		t.Errorf("the recording has no numbers of groups: %v", err)
	}
	compareY4M(t, whole, 320, 240, 0, 0, 1, complete)
	compareY4M(t, part, 64, 32, 100, 50, 3, complete)
	for _, says := range []string{"samples by UCX: 0 receivers now, 1 before;", "pictures by UCX: 0 receivers now, 2 before;"} {
		if s := serve.Out.String(); !strings.Contains(s, says) {
			t.Error(s)
		}
	}
}

// compareY4M finds each picture of a file, as a section of the isp's pictures of the test chart, after the previous one,
// and exactly step pictures after it if none was lost.
func compareY4M(t *testing.T, path string, width, height, x, y, step int, complete bool) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	in := bufio.NewReader(file)
	head, err := in.ReadString('\n')
	if err != nil || !strings.HasPrefix(head, fmt.Sprintf("YUV4MPEG2 W%d H%d F20:1 ", width, height)) {
		t.Fatal(err, head)
	}
	numbers := chart(t, width, height, x, y)
	before, n := -1, 0
	picture := make([]byte, 2*width*height)
	for {
		line, err := in.ReadString('\n')
		if err == io.EOF && line == "" {
			break
		}
		if _, e := io.ReadFull(in, picture); err != nil || e != nil || line != "FRAME\n" {
			t.Fatal(err, e, line)
		}
		number, known := numbers[crc32.ChecksumIEEE(picture)]
		if !known || before >= 0 && (number < before+step || complete && number > before+step) {
			t.Fatalf("%s: picture %d is that of frame %d (%t), the one before that of frame %d", path, n, number, known, before)
		}
		before = number
		n++
	}
	if n == 0 {
		t.Errorf("%s has no picture", path)
	}
}

// chart maps the CRC of a section of a picture, as planes, to the numbers of the first frames.
func chart(t *testing.T, width, height, x, y int) map[uint32]int {
	t.Helper()
	numbers, n := map[uint32]int{}, 0
	eachPicture(t, 320, 240, 600, []picture{{pipeline.UYVY, 1}}, func(outs []*pipeline.Frame) {
		var luma, blue, red []byte
		for line := range height {
			for i, b := range outs[0].Bytes[(y+line)*640+2*x:][:2*width] {
				switch i % 4 {
				case 0:
					blue = append(blue, b)
				case 2:
					red = append(red, b)
				default:
					luma = append(luma, b)
				}
			}
		}
		numbers[crc32.ChecksumIEEE(bytes.Join([][]byte{luma, blue, red}, nil))] = n
		n++
	})
	return numbers
}

// A sender is a program with two UCX outputs.
type sender struct {
	*programtest.Process
	metrics func() string
}

// sending starts a sender at an address.
func sending(t *testing.T, transports, at string) sender {
	t.Helper()
	web := freePort(t)
	text := strings.Replace(fmt.Sprintf(ucxYAML, at), "web: {listen: none}", fmt.Sprintf("web: {listen: %q}", web), 1)
	serve := over(t, transports, "serve", "--config", programtest.Write(t, "ucx.yaml", text))
	return sender{serve, func() string {
		_, text := fetch(t, "http://"+web+"/metrics")
		return text
	}}
}

// count returns a metric of an output or a source, or -1 if there is none.
func (s sender) count(metric, of string) int {
	line := regexp.MustCompile(`(?m)^tegracast_` + metric + `\{(?:output|source)="` + of + `"\} (\d+)$`)
	m := line.FindStringSubmatch(s.metrics())
	if m == nil {
		return -1
	}
	n, _ := strconv.Atoi(m[1]) // of digits
	return n
}

// awaits waits until a metric is at least n, or exactly n.
func (s sender) awaits(t *testing.T, metric, of string, n int, exactly bool) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		is := s.count(metric, of)
		if is == n || is > n && !exactly {
			return
		}
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("%s of %s is %d, and not %d\n%s", metric, of, is, n, s.Err.String())
		}
	}
}

// interrupt ends a receiver, which then prints its result.
func interrupt(t *testing.T, p *programtest.Process) {
	t.Helper()
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
}

// TestReceiversFail kills one receiver and stops another. A third one goes on, and the stopped one receives frames again
// when it continues.
func TestReceiversFail(t *testing.T) {
	if !longRun {
		t.Skip("LONG: TEGRACAST_LONG=1 runs it (make test-long)")
	}
	at := freePort(t)
	serve := sending(t, "tcp", at)
	start := func() *programtest.Process {
		return over(t, "tcp", "receive", "--json", "--duration", "10m", "--ucx", at, "--stream", "pictures")
	}
	killed, stopped, good := start(), start(), start()
	serve.awaits(t, "ucx_receivers", "pictures", 3, true)
	serve.awaits(t, "ucx_frames_total", "pictures", 30, false)
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed.Wait(t, time.Minute)
	serve.awaits(t, "ucx_receivers", "pictures", 2, true)
	if err := stopped.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	serve.awaits(t, "ucx_receivers", "pictures", 1, true)
	if err := stopped.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	serve.awaits(t, "ucx_receivers", "pictures", 2, true)
	interrupt(t, good)
	interrupt(t, stopped)
	if r := ends(t, stopped, exitFailure); r.Connections < 2 || r.Mismatched > 0 {
		t.Errorf("the stopped one: %+v", r)
	}
	if status := good.Wait(t, time.Minute); status != exitOK {
		t.Logf("the good one: status %d: the machine is busy\n%s", status, good.Out.String())
	}
	var r received
	if err := json.Unmarshal(good.Out.Bytes(), &r); err != nil || r.Mismatched > 0 || r.Frames == 0 {
		t.Errorf("the good one: %v %+v", err, r)
	}
	serve.Stop(t)
	b := books(t, serve.Out.String()) // checks the sums
	if strings.Contains(serve.Out.String(), "lost 0; events") && b["pictures"][2]+b["samples"][2] > 0 {
		t.Errorf("this machine is fast enough for the camera, and an output has lost frames\n%s", serve.Out.String())
	}
	if s := serve.Err.String(); !strings.Contains(s, "it has") {
		t.Errorf("the log does not say that a receiver was cut off\n%s", s)
	}
}

// TestReceiverConnectsAgain kills the sender and starts it again.
func TestReceiverConnectsAgain(t *testing.T) {
	at := freePort(t)
	receive := over(t, "tcp", "receive", "--json", "--duration", "10m", "--ucx", at, "--stream", "samples") // starts before the sender
	for range 2 {
		serve := sending(t, "tcp", at)
		serve.awaits(t, "ucx_frames_total", "samples", 10, false)
		if err := serve.Process.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		serve.Wait(t, time.Minute)
	}
	interrupt(t, receive)
	r := ends(t, receive, exitFailure)
	if said := receive.Err.String(); r.Connections < 2 || r.Frames == 0 || r.Matched != r.Frames || !strings.Contains(said, "the connection is broken") {
		t.Errorf("%+v\n%s", r, said)
	}
}

// TestReceiveRefused covers invalid command lines, and requests for what the sender does not have.
func TestReceiveRefused(t *testing.T) {
	programtest.NotShort(t)
	at := freePort(t)
	serve := over(t, "tcp", "serve", "--config", programtest.Write(t, "ucx.yaml", fmt.Sprintf(ucxYAML, at)))
	there := programtest.Write(t, "there.mcap", "x")
	for _, c := range []struct {
		args   []string
		status int
		says   string
	}{
		{nil, exitUsage, "name the sender"},
		{[]string{"--ucx", "nowhere"}, exitUsage, "host:port"},
		{[]string{"--ucx", at, "--every", "0"}, exitUsage, "--every 0"},
		{[]string{"--ucx", at, "--duration", "0s"}, exitUsage, "--duration"},
		{[]string{"--ucx", at, "--region", "640"}, exitUsage, "WIDTHxHEIGHT"},
		{[]string{"--ucx", at, "--save", "x.avi"}, exitUsage, ".mcap or .y4m"},
		{[]string{"--ucx", at, "--save", there}, exitUsage, "exists already"},
		{[]string{"--ucx", at, "--stream", "samples", "--region", "640x480+0+0"}, exitUsage, "not inside"},
		{[]string{"--ucx", at, "--stream", "side", "--duration", "4s"}, exitFailure, "samples, pictures"},
		{[]string{"--ucx", at, "--duration", "4s"}, exitFailure, "samples, pictures"},
		{[]string{"--ucx", freePort(t), "--duration", "1s"}, exitFailure, "cannot be reached"},
	} {
		p := over(t, "tcp", append([]string{"receive"}, c.args...)...)
		if status := p.Wait(t, time.Minute); status != c.status || !strings.Contains(p.Err.String(), c.says) {
			t.Errorf("%v: status %d instead of %d\n%s", c.args, status, c.status, p.Err.String())
		}
	}
	serve.Stop(t)
}
