// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/report"
)

// subscriber returns the output of mosquitto_sub with the given arguments. It must end by itself within a minute.
func subscriber(t *testing.T, path string, b *broker, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, path, append([]string{"-h", "127.0.0.1", "-p", fmt.Sprint(portOf(b.address)), "-F", "%t %p"}, args...)...)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", c, err, out)
	}
	return string(out)
}

// TestMosquittoSub checks that mosquitto_sub receives results, events and health with their contents, and, when it
// subscribes later, the health alone, which the broker retains.
func TestMosquittoSub(t *testing.T) {
	t.Parallel()
	path, err := exec.LookPath("mosquitto_sub")
	if err != nil {
		t.Skip("NEEDS mosquitto_sub: make setup-test installs Debian's mosquitto-clients")
	}
	b := mosquitto(t, "")
	b.start(t)
	session := []string{"-i", "reader", "-c", "-q", "1", "-t", "tegracast/+/results/+", "-t", "tegracast/+/events", "-t", "tegracast/+/health"}
	subscriber(t, path, b, append(session, "-E")...) // ends when it has subscribed; the broker keeps the session
	p, stop := runs(t, Config{Server: Server{URL: b.url()}, Board: "gate", Folder: t.TempDir()})
	found := report.Report{Frame: 7, Captured: time.Unix(3, 4).UTC(), Results: []pipeline.Result{{Stage: "s", Numbers: map[string]float64{"n": 1.5}}}}
	happened := Happened{Kind: KindFault, Text: "a fault of “F4”"}
	condition := Condition{Program: "1.0", Ready: true, Started: time.Unix(5, 0).UTC(), Outputs: []OutputHealth{{Name: "raw"}}}
	if err := p.Results("numbers", found); err != nil {
		t.Fatal(err)
	}
	p.Event(happened)
	p.Health(condition)
	await(t, "acknowledgement", func() bool { return p.Stats().Published == 3 })
	stop()
	want := map[string]any{
		"tegracast/gate/results/numbers": Results{Output: "numbers", Report: found},
		"tegracast/gate/events":          Event{Happened: happened},
		"tegracast/gate/health":          Health{Condition: condition},
	}
	said := subscriber(t, path, b, append(session, "-R", "-C", "3")...) // -R: retained messages come a second time, marked as such
	for line := range strings.Lines(said) {
		checkMessage(t, line, want)
	}
	if len(want) > 0 {
		t.Errorf("it has not received %v, but\n%s", want, said)
	}
	want = map[string]any{"tegracast/gate/health": Health{Condition: condition}}
	checkMessage(t, subscriber(t, path, b, "-t", "tegracast/#", "-C", "1"), want)
}

// checkMessage compares a line of mosquitto_sub, a topic and a message, with the expected message of that topic, and
// removes that one from the map.
func checkMessage(t *testing.T, line string, want map[string]any) {
	t.Helper()
	topic, text, _ := strings.Cut(line, " ")
	expected, known := want[topic]
	if !known {
		t.Errorf("unexpected: %s", line)
		return
	}
	delete(want, topic)
	got := reflect.New(reflect.TypeOf(expected))
	if err := json.Unmarshal([]byte(text), got.Interface()); err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	head := got.Elem().FieldByName("Head")
	if h := head.Interface().(Head); h.Version != Version || h.Board != "gate" || h.Sequence != 1 {
		t.Errorf("%s: %+v", topic, h)
	}
	head.SetZero()
	if is := got.Elem().Interface(); !reflect.DeepEqual(is, expected) {
		t.Errorf("%s: %+v, want %+v", topic, is, expected)
	}
}
