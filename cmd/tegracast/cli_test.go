// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cmd/tegracast/loopback"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
)

// TestHelpTeaches checks the help of every command and subcommand: it is printed by --help, -h and help, fits on a
// terminal of 80 columns, and names the values of options in capital letters.
func TestHelpTeaches(t *testing.T) {
	value := regexp.MustCompile(`^[A-Z]*$|^WxH\+X\+Y$|^ID:RATE$`)
	list := pages(t.Context())
	for _, p := range list {
		words := strings.Fields(p.Name)
		status, text, errw := runs(t, append([]string{"help"}, words...)...)
		if status != exitOK || !strings.HasPrefix(text, "Usage: tegracast "+p.Name) || errw != "" {
			t.Errorf("help %s: status %d\n%s\n%s", p.Name, status, text, errw)
		}
		for _, option := range []string{"--help", "-h"} {
			if status, out, errw := runs(t, append(words, option)...); status != exitOK || out != text || errw != "" {
				t.Errorf("%s %s: status %d\n%s\n%s", p.Name, option, status, out, errw)
			}
		}
		for line := range strings.SplitSeq(text, "\n") {
			if utf8.RuneCountInString(line) > 80 {
				t.Errorf("help %s: %d columns: %s", p.Name, len(line), line)
			}
		}
		for _, x := range p.Flags {
			if name, _ := pflag.UnquoteUsage(x); !value.MatchString(name) || !strings.Contains(text, strings.TrimSpace(terminal.OptionName(x)+" "+name)) {
				t.Errorf("help %s: the value of --%s is %q\n%s", p.Name, x.Name, name, text)
			}
		}
	}
	if len(list) < 24 {
		t.Errorf("only %d commands", len(list))
	}
	for _, args := range [][]string{{"help"}, {"--help"}, {"-h"}} {
		status, out, _ := runs(t, args...)
		for _, name := range names(commands()) {
			if status != exitOK || !strings.Contains(out, "\n  "+name+" ") {
				t.Errorf("%s: status %d, and %s is not there:\n%s", args, status, name, out)
			}
		}
	}
	for _, name := range []string{"version", "--version", "-V"} {
		if status, out, _ := runs(t, name); status != 0 || !strings.Contains(out, "tegracast "+versionName()) || !strings.Contains(out, "go1.") {
			t.Errorf("%s: %s", name, out)
		}
	}
}

func TestLoopback(t *testing.T) {
	for _, args := range []string{"--size 1", "--size 4097 --count 3", "--size 16777216 --count 20", "--size 67108864 --count 1", "--size 70000 --direction h2c", "--size 4096 --direction c2h"} {
		status, out, errw := runs(t, append([]string{"loopback", "--device", "model", "--json"}, strings.Fields(args)...)...)
		var r loopback.Result
		if err := json.Unmarshal([]byte(out), &r); err != nil || status != 0 {
			t.Errorf("%s: status %d, %v\n%s\n%s", args, status, err, out, errw)
			continue
		}
		if lanes := map[bool]int{true: 1, false: 2}[strings.Contains(args, "direction")]; r.Wrong != 0 || r.Copies < 1 || len(r.Lanes) != lanes {
			t.Errorf("%s: %+v", args, r)
		}
		for _, l := range r.Lanes {
			if !l.Agree || l.Bytes == 0 || l.EngineBytes < l.Bytes {
				t.Errorf("%s: %+v", args, l)
			}
		}
	}
}

// TestLoopbackFindsAMismatch checks that a wrong copy is found and named.
func TestLoopbackFindsAMismatch(t *testing.T) {
	r := loopback.Result{Copies: 3, Wrong: 1, Mismatch: "copy 2, byte 17: 0x01 arrived, 0x02 was sent"}
	if err := r.Print(io.Discard, loopback.DefaultOptions()); err == nil || !strings.Contains(err.Error(), "1 of 3 copies are wrong, first: copy 2, byte 17") {
		t.Error(err)
	}
}

func TestConfigCommand(t *testing.T) {
	status, text, _ := runs(t, "config", "default")
	if status != 0 {
		t.Fatal(status)
	}
	if status, out, errw := runs(t, "config", "check", programtest.Write(t, "default.yaml", text)); status != 0 || !strings.Contains(out, ": OK (sources 1, stages 1, outputs 2)") {
		t.Errorf("the default does not check: %s %s", out, errw)
	}
	if status, out, errw := runsWith(t, text+"nonsense: 1\n", "config", "check", "-"); status != exitUsage || !strings.Contains(errw, "standard input:") {
		t.Errorf("from the standard input: status %d: %s %s", status, out, errw)
	}
	status, out, _ := runs(t, "config", "schema")
	var schema struct {
		Properties map[string]any `json:"properties"`
		Defs       map[string]struct {
			Properties           map[string]any `json:"properties"`
			AdditionalProperties bool           `json:"additionalProperties"`
		} `json:"$defs"`
	}
	if err := json.Unmarshal([]byte(out), &schema); err != nil || status != 0 {
		t.Fatalf("status %d, %v", status, err)
	}
	for _, key := range []string{"memory", "sources", "isp", "outputs"} {
		if schema.Properties[key] == nil {
			t.Errorf("the schema lacks %s", key)
		}
	}
	if p := schema.Defs["RTP"].Properties; p["destinations"] == nil || p["mtu"] == nil {
		t.Errorf("the schema's rtp: %v", p)
	}
}

// begins matches the start of an error: the program and its command, or the place in a configuration.
var begins = regexp.MustCompile(`^(tegracast|\S+:\d+:\d+: )`)

// says runs the program and checks the status, and that one line of error contains all the words. Log lines about the
// start may come before it.
func says(t *testing.T, name string, args []string, want int, words ...string) {
	t.Helper()
	status, _, errw := runs(t, args...)
	lines := strings.Split(errw, "\n")
	last := lines[len(lines)-1]
	if status != want {
		t.Errorf("%s: status %d, want %d: %s", name, status, want, errw)
	}
	for _, w := range words {
		if !strings.Contains(last, w) {
			t.Errorf("%s: %q does not say %q", name, last, w)
		}
	}
	if !begins.MatchString(last) {
		t.Errorf("%s: the error is more than one line:\n%s", name, errw)
	}
}

// TestBadInput checks that bad input gives one clear line with what, where and what to do, and the documented status.
func TestBadInput(t *testing.T) {
	short := programtest.Write(t, "short.raw", strings.Repeat("x", 1000))
	busy, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: rtptest.EvenPorts(t, 1)[0]})
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	port := busy.LocalAddr().(*net.UDPAddr).Port
	sdp := fmt.Sprintf("v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nt=0 0\r\nm=video %d RTP/AVP 26\r\nc=IN IP4 127.0.0.1\r\n", port)
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	busySDP, again := programtest.Write(t, "busy.sdp", sdp), programtest.Write(t, "again.sdp", sdp)
	two := programtest.Write(t, "two.sdp", sdp+fmt.Sprintf("m=video %d RTP/AVP 26\r\nc=IN IP4 127.0.0.1\r\n", port+10))
	serve := func(old, new string) []string {
		return []string{"serve", "--sdp-dir", t.TempDir(), "--config", goodYAML(t, old, new)}
	}
	if status, _, errw := runs(t); status != exitUsage || !strings.Contains(errw, "Usage") {
		t.Errorf("no command: status %d: %s", status, errw)
	}
	for name, c := range map[string]struct {
		args   []string
		status int
		words  []string
	}{
		"unknown command":   {[]string{"sevre"}, 2, []string{`"sevre" (did you mean serve?)`, "--help"}},
		"unknown option":    {[]string{"serve", "--confg", "x"}, 2, []string{"--confg (did you mean --config?)", "--help"}},
		"level of the log":  {[]string{"serve", "--log-level", "loud"}, 2, []string{"--log-level loud", "debug, info, warn or error"}},
		"format of the log": {[]string{"serve", "--log-format", "xml"}, 2, []string{"--log-format xml", "text or json"}},
		"extra argument":    {[]string{"loopback", "now"}, 2, []string{`"now"`}},
		"no such device":    {[]string{"loopback", "--device", "/dev/tegra_p2p99"}, 1, []string{"/dev/tegra_p2p99 is not there", "tegra_p2p"}},
		"device's name":     {[]string{"loopback", "--device", "tegra_p2p0"}, 2, []string{"--device tegra_p2p0", "/dev/tegra_p2p0"}},
		"camera's device":   {serve("model: {", "fpga: {device: /dev/tegra_p2p99, "), 1, []string{"source camera", "/dev/tegra_p2p99 is not there"}},
		"other device":      {serve("model: {", "fpga: {device: /dev/null, "), 1, []string{"/dev/null", "load the module"}},
		"no config file":    {[]string{"serve", "--config", "/nowhere.yaml"}, 2, []string{"/nowhere.yaml", "tegracast config default"}},
		"no folder":         {[]string{"serve", "--config", short + "/x.yaml"}, 2, []string{short + "/x.yaml: not a directory: correct the path, or its permissions"}},
		"UTF-16":            {[]string{"config", "check", programtest.Write(t, "c.yaml", "\xff\xfem\x00")}, 2, []string{"c.yaml:1:1: the text is UTF-16: save it as UTF-8"}},
		"directory":         {[]string{"serve", "--config", "/tmp"}, 2, []string{"/tmp is a directory", "name a file"}},
		"endless file":      {[]string{"config", "check", "/dev/zero"}, 2, []string{"/dev/zero is a device", "name a file"}},
		"missing raw file":  {serve("model: {", "file: {path: /nowhere.raw, "), 2, []string{"c.yaml:1:", "/nowhere.raw"}},
		"short raw file":    {serve("model: {", "file: {path: "+short+", "), 2, []string{"c.yaml:1:", short, "1000", "153600"}},
		"short replay":      {serve("model: {", "model: {replay: "+short+", "), 2, []string{"c.yaml:1:", short, "1000", "153600", "check width and height"}},
		"FIFO as config":    {[]string{"serve", "--config", fifo}, 2, []string{fifo + " is a FIFO", "name a file"}},
		"FIFO as file":      {serve("model: {", "file: {path: "+fifo+", "), 2, []string{"c.yaml:1:", fifo + " is a FIFO"}},
		"FIFO as replay":    {serve("model: {", "model: {replay: "+fifo+", "), 2, []string{"c.yaml:1:", fifo + " is a FIFO"}},
		"endless replay":    {serve("model: {", "model: {replay: /dev/zero, "), 2, []string{"c.yaml:1:", "/dev/zero is a device"}},
		"FIFO as SDP":       {[]string{"probe", "--sdp", fifo}, 2, []string{fifo + " is a FIFO"}},
		"endless SDP":       {[]string{"probe", "--sdp", "/dev/zero"}, 2, []string{"/dev/zero is a device"}},
		"FIFO as kernel":    {[]string{"config", "check", kernelOf(t, fifo)}, 2, []string{"c.yaml:3:", fifo + " is a FIFO"}},
		"unreachable":       {serve("127.0.0.1:5004", "nowhere.invalid:5004"), 1, []string{"nowhere.invalid"}},
		"cuda":              {serve("isp: [", "memory: cuda\nisp: ["), 2, []string{"c.yaml:2:", "use host or auto"}},
		"config check":      {[]string{"config", "check", short}, 2, []string{"short.raw:1:"}},
		"no SDP":            {[]string{"probe"}, 2, []string{"tegracast probe FILE.sdp"}},
		"SDP missing":       {[]string{"probe", "--sdp", "/nowhere.sdp"}, 2, []string{"/nowhere.sdp"}},
		"SDP malformed":     {[]string{"probe", "--sdp", programtest.Write(t, "bad.sdp", "v=0\r\nthis is not SDP\r\n")}, 2, []string{"bad.sdp", "line 2"}},
		"stream twice":      {[]string{"probe", "--sdp", busySDP, "--sdp", again}, 2, []string{again, busySDP, fmt.Sprint(port), "once"}},
		"save two streams":  {[]string{"probe", "--save", "x", "--sdp", two}, 2, []string{"--save x", "one stream"}},
		"port in use":       {[]string{"probe", "--sdp", busySDP}, 1, []string{fmt.Sprint(port), "in use"}},
		"no SDP folder":     {[]string{"serve", "--sdp-dir", "/nowhere", "--config", goodYAML(t, "5004", fmt.Sprint(port+20))}, 1, []string{"/nowhere", "--sdp-dir"}},
	} {
		says(t, name, c.args, c.status, c.words...)
	}
}

// kernelOf returns a configuration with a kernel in that file.
func kernelOf(t *testing.T, file string) string {
	t.Helper()
	return goodYAML(t, "outputs:", "kernels: [{name: k, file: "+file+"}]\noutputs:")
}

func TestReadmeCommandsExist(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"run", "test"} {
		if !strings.Contains(string(readme), "make "+word) || !strings.Contains(string(makefile), "\n"+word+":") {
			t.Errorf("make %s is not in README and Makefile", word)
		}
	}
	if n := strings.Count(string(readme), "\n"); n > 100 {
		t.Errorf("README has %d lines: two screens are the limit", n)
	}
}

// TestLogOptions checks that serve's options select what is logged, and how.
func TestLogOptions(t *testing.T) {
	for _, c := range []struct {
		level  string
		logged bool
	}{{"info", true}, {"error", false}} {
		var b bytes.Buffer
		e := env{Env: terminal.Env{Out: io.Discard, Err: &b}}
		f := e.flags("serve", "")
		logger := e.logFlags(f)
		if err := f.Parse([]string{"--log-level", c.level, "--log-format", "json"}); err != nil {
			t.Fatal(err)
		}
		log, err := logger()
		if err != nil {
			t.Fatal(err)
		}
		log.Warn("late", "frame", 3, "wait", 1500*time.Millisecond, "listen", &net.TCPAddr{IP: net.IPv6unspecified, Port: 8080},
			"error", errors.New("gone"), "files", []string{"a", "b"})
		const fields = `,"level":"WARN","msg":"late","frame":3,"wait":"1.5s","listen":"[::]:8080","error":"gone","files":["a","b"]}`
		if text := b.String(); json.Valid(b.Bytes()) != c.logged || strings.Contains(text, fields) != c.logged {
			t.Errorf("%s: %q", c.level, text)
		}
	}
}
