// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
)

// A wrong is a wrong usage: the words after tegracast, the status, and parts of the message: the place and the remedy.
type wrong struct {
	words         string // words that contain a space or are empty are quoted
	status        int
	place, remedy string
}

const tryHelp = ": try tegracast "

// wrongUsages covers every command. Its files are made by wrongFiles.
var wrongUsages = []wrong{
	{"sevre", 2, `command "sevre"`, "did you mean serve?"},
	{"--foo", 2, `option "--foo"`, tryHelp + "--help"},
	{"-v", 2, `option "-v"`, tryHelp + "--help"},
	{"help sevre", 2, `command "sevre"`, "did you mean serve?"},
	{"help serve extra", 2, `unexpected argument "extra"`, tryHelp + "help serve"},
	{"help config chek", 2, `command "chek"`, "did you mean check?"},
	{"help config nosuch", 2, `command "nosuch"`, "try tegracast config --help"},
	{"help config check extra", 2, `unexpected argument "extra"`, tryHelp + "help config check"},

	{"serve extra", 2, `unexpected argument "extra"`, tryHelp + "serve --help"},
	{"serve -x", 2, "unknown option -x", tryHelp + "serve --help"},
	{"serve --conf x", 2, "unknown option --conf", "did you mean --config?"},
	{"serve --=x", 2, `"--=x" is no option`, tryHelp + "serve --help"},
	{"serve --config", 2, "--config: the value is missing", "write --config FILE"},
	{`serve --config ""`, 2, "--config: the value is empty", "leave --config out"},
	{"serve --config nowhere.yaml", 2, "nowhere.yaml: no such file", "tegracast config default"},
	{"serve --config folder", 2, "folder is a directory", "name a file"},
	{"serve --config text.txt", 2, "text.txt:1:1: ", "must be a map of keys"},
	{"serve --config empty", 2, "empty:1:1: there is nothing in it", "tegracast config default"},
	{`serve --sdp-dir ""`, 2, "--sdp-dir: the value is empty", "leave --sdp-dir out"},
	{"serve --sdp-dir", 2, "--sdp-dir: the value is missing", "write --sdp-dir DIR"},
	{"serve --fault F3", 2, `--fault: bad fault: rate of "F3"`, "like F3:0.01"},
	{"serve --fault F3:2", 2, `rate of "F3:2"`, "want a number from 0 to 1"},
	{"serve --fault F3:often", 2, `rate of "F3:often"`, "like F3:0.01"},
	{"serve --fault F99:0.1", 2, `"F99"`, "want F1 to F12"},
	{"serve --quiet=maybe", 2, "--quiet maybe", "must be true or false"},
	{"serve --log-level loud", 2, "--log-level loud", "debug, info, warn or error"},
	{"serve --log-format xml", 2, "--log-format xml", "text or json"},

	{"reload now", 2, `unexpected argument "now"`, tryHelp + "reload --help"},
	{"reload", 2, "only systemd runs it", "systemctl reload tegracast"},

	{"loopback model", 2, `unexpected argument "model"`, tryHelp + "loopback --help"},
	{"loopback --size", 2, "--size: the value is missing", "write --size BYTES"},
	{"loopback --size 16X", 2, "--size 16X", "such as 4MB or 16MiB"},
	{"loopback --size big", 2, "--size big", "a number of bytes"},
	{"loopback --size 0", 2, "--size 0", "must be from 1 to 1073741824"},
	{"loopback --size -1", 2, "--size -1", "must be from 1 to 1073741824"},
	{"loopback --size 2GiB", 2, "--size 2147483648", "must be from 1 to 1073741824"},
	{"loopback --count many", 2, "--count many", "a whole number, such as 10"},
	{"loopback --count 0", 2, "--count 0", "must be at least 1"},
	{"loopback --count 99999999999999999999", 2, "--count 99999999999999999999", "a whole number"},
	{"loopback --device tegra_p2p0", 2, "--device tegra_p2p0", "use model, or a device file such as /dev/tegra_p2p0"},
	{"loopback --device /dev/tegra_p2p99", 1, "/dev/tegra_p2p99 is not there", "tegra_p2p"},
	{"loopback --device /dev/null", 1, "/dev/null", "load the module of this release"},
	{"loopback --device /dev", 1, "/dev: is a directory", "name a device file such as /dev/tegra_p2p0"},
	{"loopback --memory gpu", 2, "--memory gpu", "use host, cuda or auto"},
	{"loopback --direction up", 2, "--direction up", "use h2c, c2h or both"},
	{"loopback --address here", 2, "--address here", "such as 4096 or 0x1000"},
	{"loopback --address 0xffffffffffffffff", 2, "--address 0xffffffffffffffff", "beyond the last address"},
	{"loopback --window 0", 2, "--window 0", "must be from 1 to"},
	{"loopback --window wide", 2, "--window wide", "such as 4MB or 16MiB"},
	{"loopback --channel 4", 2, "--channel 4", "from 0 to 3"},
	{"loopback --channel x", 2, "--channel x", "a whole number, such as 0"},
	{"loopback --channel 1", 1, "no memory-mapped channel 1", "name another one with --channel"},
	{"loopback --clock 0", 2, "--clock 0", "from 1 to 1000 MHz"},
	{"loopback --clock fast", 2, "--clock fast", "a number, such as 250"},
	{"loopback --json=2", 2, "--json 2", "must be true or false"},

	{"probe", 2, "the stream's description", "tegracast probe FILE.sdp"},
	{"probe nowhere.sdp", 2, "nowhere.sdp: no such file", "correct the path"},
	{"probe folder", 2, "folder is a directory", "name a file"},
	{"probe text.txt", 2, "text.txt: sdp: line 1", "give the file that the sender has written"},
	{"probe empty", 2, "empty: sdp: line 1", "give the file that the sender has written"},
	{"probe sound.sdp", 2, "sound.sdp: sdp: no m=video line", "give the file that the sender has written"},
	{"probe one.sdp one.sdp", 2, "one.sdp: goes to port 45004", "give each stream once"},
	{"probe one.sdp --duration 5", 2, "--duration 5", "such as 30s"},
	{"probe one.sdp --duration soon", 2, "--duration soon", "such as 30s"},
	{"probe one.sdp --duration 0s", 2, "--duration 0s", "must be more than 0"},
	{"probe one.sdp --duration -1s", 2, "--duration -1s", "must be more than 0"},
	{"probe one.sdp group.sdp --save x", 2, "--save x", "run one probe for each"},
	{"probe one.sdp --save x.y4m", 2, "--save x.y4m: Y4M has raw pictures", "give the file another ending"},
	{"probe one.sdp --save folder", 2, "--save: open folder: is a directory", "name a file that can be written"},
	{"probe one.sdp --save nowhere/x", 2, "nowhere/x: no such file", "name a file that can be written"},
	{"probe one.sdp --interface nope0", 2, "--interface nope0: no stream is multicast or link-local", "leave --interface out"},
	{"probe group.sdp --interface nope0", 1, "no interface nope0", "ip link lists them"},
	{"probe --sdp", 2, "--sdp: the value is missing", "write --sdp FILE"},

	{"receive", 2, "name the sender with --ucx", tryHelp + "receive --help"},
	{"receive 127.0.0.1:5020", 2, `unexpected argument "127.0.0.1:5020"`, tryHelp + "receive --help"},
	{"receive --ucx here", 2, `"here"`, "write host:port, such as"},
	{"receive --ucx :5020", 2, `":5020"`, "write host:port, such as"},
	{"receive --ucx 127.0.0.1:0", 2, `"127.0.0.1:0"`, "write host:port, such as"},
	{"receive --ucx 127.0.0.1:65536", 2, `"127.0.0.1:65536"`, "write host:port, such as"},
	{"receive --ucx h:1 --every 0", 2, "--every 0", "must be from 1"},
	{"receive --ucx h:1 --every other", 2, "--every other", "a whole number, such as 1"},
	{"receive --ucx h:1 --region 5", 2, "--region 5", "such as 640x480+0+120"},
	{"receive --ucx h:1 --duration 0s", 2, "--duration 0s", "must be more than 0"},
	{"receive --ucx h:1 --save x.avi", 2, "--save x.avi", "must end in .mcap or .y4m"},
	{"receive --ucx h:1 --save text.mcap", 2, "--save text.mcap", "remove it, or name another one"},
	{"receive --ucx h:1 --save nowhere/x.mcap", 2, "--save nowhere/x.mcap", "a folder that can be written to"},

	{"fleet", 2, "name the bus with --server", tryHelp + "fleet --help"},
	{"fleet --server here:4222", 2, `--server "here:4222"`, "write nats://HOST"},
	{"fleet --server nats://me:pw@here", 2, "which everyone can see", "write user and password_file"},
	{"fleet --user me --password-file x", 2, "name the bus", "with --server, too"},
	{"fleet --server nats://h --user me", 2, "--user and --password-file", "go together"},
	{"fleet --server nats://h --user me --password-file x --token-file y", 2, "give one of --user", "--credentials-file"},
	{"fleet --server nats://h --token-file nowhere", 2, "--token-file: stat nowhere", "correct the path"},
	{"fleet --server nats://h --deadline 0s", 2, "--deadline 0s", "must be more than 0"},
	{"fleet --server nats://127.0.0.1:1", 1, "nats://127.0.0.1:1", "correct --server"},

	{"record", 2, "use one of ls, info, verify, export, repair", tryHelp + "record --help"},
	{"record inf x", 2, `unknown command "inf"`, "did you mean info?"},
	{"record play x", 2, `unknown command "play"`, "use one of ls, info, verify, export, repair"},
	{"record ls --jsn", 2, "unknown option --jsn", "did you mean --json?"},
	{"record info", 2, "the file is missing", tryHelp + "record info --help"},
	{"record info nowhere.mcap", 1, "nowhere.mcap: no such file", "correct the path"},
	{"record info folder", 1, "folder is a directory", "name a file"},
	{"record info text.mcap", 1, "text.mcap: mcap: not an MCAP file: it begins with", "give a recording"},
	{"record verify empty", 1, "empty: mcap: not an MCAP file: it is empty", "give a recording"},
	{"record info text.mcap --from 1", 2, "unknown option --from", tryHelp + "record info --help"},
	{"record repair text.mcap", 1, "text.mcap: mcap: not an MCAP file", "give a recording"},
	{"record repair --json text.mcap", 2, "unknown option --json", tryHelp + "record repair --help"},
	{"record export text.mcap", 2, "name the destination", "--output"},
	{"record export --json text.mcap -o x.y4m", 2, "unknown option --json", tryHelp + "record export --help"},
	{"record export text.mcap -o x", 2, "x does not say which format", "give --format mcap"},
	{"record export text.mcap -o x.avi", 2, `unknown format "avi"`, "use mcap, y4m"},
	{"record export text.mcap -o x.y4m", 1, "text.mcap: mcap: not an MCAP file", "give a recording"},
	{"record export nowhere.mcap -o x.y4m", 1, "nowhere.mcap: no such file", "correct the path"},
	{"record export text.mcap -o x.y4m --from later", 2, "--from later", "such as 1m30s"},
	{`record export text.mcap -o ""`, 2, "--output: the value is empty", "give one"},

	{"doctor extra", 2, `unexpected argument "extra"`, tryHelp + "doctor --help"},
	{"doctor --jsn", 2, "unknown option --jsn", "did you mean --json?"},
	{"doctor --report", 2, "--report: the value is missing", "write --report FILE"},
	{"doctor --report text.txt", 2, "--report text.txt: the file exists", "give another name"},
	{"doctor --report nowhere/x.tar", 2, "--report nowhere/x.tar", "a folder that can be written to"},
	{"doctor --service --report x.tar", 2, "--report and --service", "use one of them"},

	{"bind", 2, "the PCI address of one function", "lspci -D"},
	{"bind 01:00.0 02:00.0", 2, "the PCI address of one function", tryHelp + "bind --help"},
	{"bind camera", 2, `"camera" is no PCI address`, "such as 0005:01:00.0"},
	{"bind 0000:01:00.9", 2, `"0000:01:00.9" is no PCI address`, "lspci -D lists them"},
	{"bind fffe:ff:1f.7", 1, "there is no function fffe:ff:1f.7", "lspci -D lists them"},
	{"bind --force 01:00.0", 2, "unknown option --force", tryHelp + "bind --help"},

	{"config", 2, "use one of default, check, diff, schema, tls", tryHelp + "config --help"},
	{"config chek x", 2, `unknown command "chek"`, "did you mean check?"},
	{"config check", 2, "the file is missing", tryHelp + "config check --help"},
	{"config check one.sdp two", 2, `unexpected argument "two"`, tryHelp + "config check --help"},
	{"config check nowhere.yaml", 2, "nowhere.yaml: no such file", "correct the path"},
	{"config check zeros", 2, "zeros:1:1: ", "must be a map of keys"},
	{"config diff one two", 2, `unexpected argument "two"`, tryHelp + "config diff --help"},
	{"config default extra", 2, `unexpected argument "extra"`, tryHelp + "config default --help"},
	{"config schema --json", 2, "unknown option --json", tryHelp + "config schema --help"},
	{"config --json schema", 2, "unknown option --json", tryHelp + "config --help"},
	{"config tls extra", 2, `unexpected argument "extra"`, tryHelp + "config tls --help"},
	{"config tls --dir nowhere", 1, "nowhere/web.crt: no such file", "a folder that can be written to with --dir"},
	{`config tls --name "a b"`, 2, `--name "a b"`, "such as camera.example.org"},

	{"version extra", 2, `unexpected argument "extra"`, tryHelp + "version --help"},
	{"version --jsn", 2, "unknown option --jsn", tryHelp + "version --help"},
	{"completion", 2, "use bash, zsh or fish", tryHelp + "completion --help"},
	{"completion csh", 2, "use bash, zsh or fish", tryHelp + "completion --help"},
	{"man tegracast.conf", 2, "use tegracast or tegracast.yaml", tryHelp + "man --help"},
	{"man --foo", 2, "unknown option --foo", tryHelp + "man --help"},
}

// wrongConfigurations lists changes of a valid configuration, and the messages.
var wrongConfigurations = []struct{ old, new, place, remedy string }{
	{"sources:", "source:", `c.yaml:1:1: unknown key "source"`, "known here are memory, sources,"},
	{"320", "wide", `c.yaml:1:41: sources[0].model.width: "wide"`, "a whole number from 64 to 32768"},
	{"320", `"320"`, `sources[0].model.width: "320"`, "without quotes"},
	{"240}", "240, rate: fast}", `sources[0].model.rate: "fast"`, "write frames a second as 30 or 30000/1001"},
	{"240}", "240, exposure: 8}", `sources[0].model.exposure: "8"`, "the unit is missing: write 8s"},
	{"240}", "240, faults: {F99: 0.1}}", `sources[0].model.faults.F99: `, "want F1 to F12"},
	{"model: {width", "fpga: {device: tegra_p2p0, width", `sources[0].fpga.device: "tegra_p2p0"`, "such as /dev/tegra_p2p0"},
	{"240}", "240, replay: /nowhere.raw}", "sources[0].model.replay: stat /nowhere.raw", "correct the path"},
	{"{name: isp}", "{name: isp, demosaic: best}", `isp[0].demosaic: "best"`, "use malvar or bilinear"},
	{"{name: isp}", "{name: isp, device: gpu}", `isp[0].device: "gpu"`, "use auto, cpu or cuda"},
	{"{name: isp}", "{name: isp, gama: 2}", `c.yaml:2:19: isp[0]: unknown key "gama"`, "known here are name, from,"},
	{"isp: [{name: isp}]", "memory: gpu\nisp: [{name: isp}]", `c.yaml:2:9: memory: "gpu"`, "use auto, cuda or host"},
	{"isp: [{name: isp}]\n", "", `source "camera" delivers Bayer frames`, "which need an isp"},
	{"payload: raw", "payload: rao", `outputs[0].rtp.payload: "rao"`, "must be one of raw, jpeg, results, h264"},
	{"payload: raw", "payload: raw, mtu: 1", "outputs[0].rtp.mtu: \"1\"", "from 576 to 9000"},
	{"payload: raw", "payload: raw, interface: lo", "outputs[0].rtp.interface: ", "leave interface out"},
	{"127.0.0.1:5004", "127.0.0.1:5005", "outputs[0].rtp.destinations[0]: ", "use 5004"},
	{"127.0.0.1:5004", "127.0.0.1", "c.yaml:3:58: outputs[0].rtp.destinations[0]: ", "host:port"},
	{streams, "{name: a, ucx: {listen: here}}", `outputs[0].ucx.listen: "here"`, "write an IP address and a port"},
	{streams, "{name: a, results: {}}", "outputs[0].results: ", "give the destination of the results"},
	{streams, "{name: a, results: {bus: true}}", "outputs[0].results.bus: which one?", "Write the section bus, too"},
	{"isp: [{name: isp}]", "bus: {server: here}\nisp: [{name: isp}]", `bus.server: "here"`, "write nats://HOST"},
	{"isp: [{name: isp}]", "bus: {server: mqtt://h, board: a.b}\nisp: [{name: isp}]", `bus.board: "a.b"`, "must be 1 to 64"},
	{"isp: [{name: isp}]", "bus: {server: mqtt://h, board: a, token_file: x}\nisp: [{name: isp}]", "bus.token_file: ", "write user and password_file"},
	{"isp: [{name: isp}]", "bus: {server: nats://h, board: a, user: x}\nisp: [{name: isp}]", "bus.user: ", "write password_file, too"},
	{"isp: [{name: isp}]", "bus: {server: nats://h, board: a, store: 1MB}\nisp: [{name: isp}]", "bus.store: 1000000 bytes", "at least 16MiB"},
	{streams, "{name: a, record: {directory: /d, trigger: {}}}", "outputs[0].record.trigger: ", "give before, after or both"},
	{"[" + streams + "]", "[]", "c.yaml:3:10: outputs: ", "there must be at least one"},
	{"name: raw", "name: 5", "outputs[0].name: 5 is read as something else", "put it in quotes"},
	{"name: raw, ", "name: raw, policy: newest, ", `outputs[0].policy: "newest"`, "must be latest or block"},
}

// wrongFiles makes the files that the wrong usages name, in a folder of its own, and changes to it.
func wrongFiles(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	stream := func(media, address string) string {
		return "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nt=0 0\r\nm=" + media + " 45004 RTP/AVP 26\r\nc=IN IP4 " + address + "\r\n"
	}
	for name, text := range map[string]string{
		"text.txt": "hello\n", "text.mcap": "hello\n", "empty": "", "zeros": strings.Repeat("\x00", 1000),
		"one.sdp": stream("video", "127.0.0.1"), "group.sdp": stream("video", "239.1.2.3"), "sound.sdp": stream("audio", "127.0.0.1"),
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir("folder", 0o700); err != nil {
		t.Fatal(err)
	}
}

// goWords matches words that users who do not program in Go should never see.
var goWords = regexp.MustCompile(`strconv|goroutine|panic|float64|int64|<nil>|%!|main\.|yamlfile|\*[a-z]+\.[A-Z]`)

// TestWrongUsages checks that each ends with its status and one line that says where, what, and what to do.
func TestWrongUsages(t *testing.T) {
	wrongFiles(t)
	word := regexp.MustCompile(`"[^"]*"|\S+`)
	check := func(args []string, c wrong) {
		says(t, c.words, args, c.status, c.place, c.remedy)
		if _, _, errw := runs(t, args...); goWords.MatchString(errw) || len(errw) > 400 {
			t.Errorf("%s: in Go's words, or too long: %s", c.words, errw)
		}
	}
	for _, c := range wrongUsages {
		args := word.FindAllString(c.words, -1)
		for i := range args {
			args[i] = strings.Trim(args[i], `"`)
		}
		check(args, c)
	}
	for _, c := range wrongConfigurations {
		text := strings.Replace(good, c.old, c.new, 1)
		if text == good {
			t.Fatalf("%q is not in the configuration", c.old)
		}
		check([]string{"config", "check", programtest.Write(t, "c.yaml", text)}, wrong{"with " + c.new, exitUsage, c.place, c.remedy})
	}
	if n := len(wrongUsages) + len(wrongConfigurations); n < 90 {
		t.Errorf("only %d wrong usages", n)
	}
}
