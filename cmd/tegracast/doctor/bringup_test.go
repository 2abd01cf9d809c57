// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
)

// bringupPage returns docs/bringup.md.
func bringupPage(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../../docs/bringup.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestBringupOrder checks that the page's tables have all of doctor's findings, in its order.
func TestBringupOrder(t *testing.T) {
	var said []string
	for _, x := range ofPatient(orin(), usesNVP2P|protected).examine() {
		if !slices.Contains(said, x.What) {
			said = append(said, x.What)
		}
	}
	var told []string
	table := false
	for line := range strings.Lines(bringupPage(t)) {
		cells := strings.Split(line, "|")
		switch {
		case strings.HasPrefix(line, "| doctor |"):
			table = true
		case !strings.HasPrefix(line, "|"):
			table = false
		case table && !strings.HasPrefix(line, "|---"):
			for name := range strings.SplitSeq(cells[1], ",") {
				told = append(told, strings.TrimSpace(name))
			}
		}
	}
	if !slices.Equal(said, told) {
		t.Errorf("doctor says\n%q, the page has\n%q", said, told)
	}
}

// TestBringupCommands checks that every command of the page exists, and that this program's commands have the options.
func TestBringupCommands(t *testing.T) {
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(bringupPage(t), -1)
	ours, others := 0, 0
	for _, block := range blocks {
		for line := range strings.Lines(block[1]) {
			command, _, _ := strings.Cut(line, "  #")
			if command = strings.TrimSpace(command); strings.HasPrefix(command, "# ") {
				continue // requirements of the following commands
			}
			args, own := strings.CutPrefix(command, "tegracast ")
			if !own {
				others++
				exists(t, command)
				continue
			}
			ours++
			p := programtest.StartProgram(t, append(strings.Fields(args), "--help")...)
			if p.Need(t, time.Minute); !strings.Contains(p.Out.String(), "Usage: tegracast") {
				t.Errorf("%s: %s", command, p.Out.String())
			}
		}
	}
	if ours < 7 || others < 8 {
		t.Errorf("%d commands of tegracast, %d others", ours, others)
	}
}

func TestMain(m *testing.M) { programtest.Main(m) }
