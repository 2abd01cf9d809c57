// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
)

// A shell block of a page is fenced as sh, or as console if its lines begin with the name of a machine. A comment in it
// gives the reason why the lines after it are not run here, up to the next such comment: they need something, or take
// minutes (test-long runs them) or hours (.ci/newcomer and make rtl-long cover these).
var (
	fence  = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")
	named  = regexp.MustCompile("(?ms)^```yaml\n# (\\w+\\.yaml)\n(.*?)^```$")
	indent = regexp.MustCompile(`(?m)(?:^    .*\n)+`)
	mark   = regexp.MustCompile(`^# (needs (?:an?|another|the) |takes (?:minutes|hours))`)
	typed  = regexp.MustCompile(`(?m)^ *(?:[A-Z]+\$ )?(?:sudo |bin/)?(?:[A-Z_]+=\S+ )?(?:tegracast|make|go|apt-get|systemctl|journalctl|sysctl|ffplay|` +
		`ffmpeg|gst-launch-1\.0|vlc|curl|ssh|scp|cat|echo|nft|modprobe|insmod|nats|mosquitto_\w+|lspci|git|nvpmodel) [a-zA-Z0-9./'"$-]`)
)

// shellLines returns the lines of a page to run at once, and those that take minutes. A line that is neither is an error.
func shellLines(t *testing.T, page, text string) (now, long []string) {
	t.Helper()
	for _, block := range fence.FindAllStringSubmatch(text, -1) {
		if block[1] != "sh" && block[1] != "console" {
			if block[1] == "" && page != "commands.md" && typed.MatchString(block[2]) {
				t.Errorf("%s: these commands are not run: fence them as sh, and mark what cannot be run (CONTRIBUTING.md):\n%s", page, block[2])
			}
			continue
		}
		said := ""
		for line := range strings.Lines(block[2]) {
			line = strings.TrimSpace(line)
			line = strings.TrimPrefix(line, "HOST$ ")
			switch there, elsewhere := strings.CutPrefix(line, "VIEWER$ "); {
			case mark.MatchString(line):
				said = line
			case strings.HasPrefix(said, "# takes minutes"):
				long = append(long, line)
			case said != "" || elsewhere && !strings.HasPrefix(there, "tegracast "):
			default:
				now = append(now, there)
			}
		}
	}
	for _, block := range indent.FindAllString(fence.ReplaceAllString(text, ""), -1) {
		if typed.MatchString(block) {
			t.Errorf("%s: these commands are not run: fence them as sh, and mark what cannot be run (CONTRIBUTING.md):\n%s", page, block)
		}
	}
	return now, long
}

// pageShell runs the lines of a page in a folder with the sources and the program, in its own namespaces for the network,
// where this machine is also 192.0.2.7, and for processes, which end with the shell. A serve process keeps running for
// the following lines. Losses, and what doctor misses here, are not the page's mistakes.
const pageShell = `set -eEu -o pipefail
trap 'echo "failed: $BASH_COMMAND" >&2; cat serve.log >&2 2>/dev/null' ERR
ip link set lo up
ip address add 192.0.2.7/32 dev lo
serve=
end() {
	[ -n "$serve" ] || return 0
	# To the program alone: make would pass its own signal on, and the second one ends the program at once.
	kill -TERM $(grep -lsx tegracast /proc/[0-9]*/comm | cut -d/ -f3)
	wait "$serve" || true
	while kill -0 -- "-$serve" 2>/dev/null; do sleep 0.05; done # make does not wait for serve
	grep -q '= delivered' serve.log
	serve=
}
begin() {
	end
	: >serve.log
	setsid "$@" >serve.log 2>&1 &
	serve=$!
	until grep -qs 'source streaming' serve.log; do kill -0 "$serve"; sleep 0.05; done
}
make() {
	if [ "$1" = run ]; then begin /usr/bin/make run; else /usr/bin/make "$@"; fi
}
tegracast() {
	case $1 in
	serve) case $* in *--exit-at-end) bin/tegracast "$@" ;; *) begin bin/tegracast "$@" --sdp-dir run; sleep 1 ;; esac ;;
	probe) bin/tegracast "$@" --duration 1s >heard || [ $? = 1 ]; cat heard; grep -Eq ' [1-9][0-9]* complete' heard ;;
	receive) bin/tegracast "$@" --duration 3s >heard || [ $? = 1 ]; cat heard; [ -s heard ] ;;
	doctor) bin/tegracast "$@" || [ $? = 1 ] ;;
	*) bin/tegracast "$@" ;;
	esac
}
scp() { :; } # this machine is both
mkdir -p run
`

// before creates what a page expects.
var before = map[string]string{
	"watch.md": `tegracast serve`,
	"recording.md": `cat >my.yaml <<END
sources: [{name: camera, model: {width: 640, height: 480}}]
outputs: [{name: front, from: camera, record: {directory: "$PWD"}}]
END
tegracast serve --config my.yaml
sleep 2
end`,
	"ucx.md": `cat >my.yaml <<END
sources: [{name: camera, model: {width: 1280, height: 720}}]
isp: [{name: isp}]
outputs:
  - {name: samples, from: camera, ucx: {listen: "0.0.0.0:5020"}}
  - {name: front, ucx: {listen: "0.0.0.0:5020", receivers: 2}}
END
tegracast serve --config my.yaml`,
}

// TestPagesRun runs every shell block of README and the pages, or checks that a comment gives the reason why not.
func TestPagesRun(t *testing.T) {
	programtest.NotShort(t)
	run, longer := 0, map[string]bool{}
	for page, text := range documents(t) {
		now, long := shellLines(t, page, text)
		for _, line := range long {
			longer[strings.TrimSpace(strings.Split(line, "  #")[0])] = true
		}
		if len(now) == 0 {
			continue
		}
		run += len(now)
		t.Run(page, func(t *testing.T) { runPage(t, text, before[page]+"\n"+strings.Join(now, "\n")) })
	}
	if run < 18 || len(longer) < 5 {
		t.Errorf("only %d commands are run, and %d take minutes", run, len(longer))
	}
	if os.Getenv("TEGRACAST_LONG") == "" {
		return
	}
	for line := range longer {
		t.Run(line, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
			defer cancel()
			c := exec.CommandContext(ctx, "env", "-u", "TEGRACAST_LONG", "bash", "-c", line)
			c.Dir = filepath.Join("..", "..")
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// runPage runs the commands of a page, in a folder with the configurations that begin with a name.
func runPage(t *testing.T, text, lines string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("NEEDS root, to make network namespaces")
	}
	dir := t.TempDir()
	if out, err := exec.Command("bash", "-c", "cd ../.. && git ls-files -z | tar --null -T - -c | tar -x -C "+dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(programtest.Program(t), filepath.Join(dir, "bin", "tegracast")); err != nil {
		t.Fatal(err)
	}
	for _, m := range named.FindAllStringSubmatch(text, -1) {
		if err := os.WriteFile(filepath.Join(dir, m[1]), []byte(m[2]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	lines = strings.NewReplacer("bin/tegracast ", "tegracast ", "VIEWER", "192.0.2.7", "192.0.2.7:5020", "127.0.0.1:5020").Replace(lines)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", pageShell+lines+"\nend")
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s\n%s", err, lines, out)
	}
}
