// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tegracast/tegracast/cmd/tegracast/web"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/record"
)

// A state is the service's report about itself.
type state struct {
	at      time.Time
	Outputs []web.Output   `json:"outputs"`
	Bus     web.Bus        `json:"bus"`
	Books   pipeline.Stats `json:"books"`
	metrics string
}

// readState gets the service's state.
func (w *world) readState() (s state, err error) {
	for _, path := range []string{"/readyz", "/healthz", "/metrics", "/api/v1/status"} {
		status, body, err := get(w.client, path)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("%s: %d %s", path, status, body)
		}
		if err != nil {
			return s, err
		}
		if path == "/metrics" {
			s.metrics = string(body)
		}
		if path == "/api/v1/status" {
			if err := json.Unmarshal(body, &s); err != nil {
				return s, err
			}
		}
	}
	s.at = time.Now()
	return s, nil
}

// metric returns the sum of a metric's values.
func (s *state) metric(name string) (sum float64) {
	for _, m := range regexp.MustCompile(`(?m)^`+name+`(?:\{.*\})? (\S+)$`).FindAllStringSubmatch(s.metrics, -1) {
		v, _ := strconv.ParseFloat(m[1], 64) // 0 if invalid
		sum += v
	}
	return sum
}

// window is the time between two reports in which every part must make progress. It is longer on a slow machine.
const window = time.Second

// runs returns what does not run as at the start.
func (w *world) runs() error {
	before, err := w.readState()
	if err != nil {
		return err
	}
	time.Sleep(window)
	now, err := w.readState()
	if err != nil {
		return err
	}
	errs := []error{sourcesRun(before, now), outputsRun(before, now)}
	for _, m := range []struct {
		name  string
		count float64
	}{{"tegracast_ucx_receivers", 1}, {"tegracast_share_consumers", 1}, {"tegracast_bus_connected", 1}, {"tegracast_bus_stored_bytes", 0}} {
		errs = append(errs, errorf(now.metric(m.name) == m.count, "%s is %v, and not %v", m.name, now.metric(m.name), m.count))
	}
	for _, name := range []string{"tegracast_ucx_frames_total", "tegracast_share_frames_total", "tegracast_bus_published_messages_total", "tegracast_rtp_packets_total"} {
		errs = append(errs, errorf(now.metric(name) > before.metric(name), "%s stays at %v", name, now.metric(name)))
	}
	for _, r := range w.readers {
		errs = append(errs, r.reads(2*window+time.Since(before.at)+w.late.since(before.at)))
	}
	return errors.Join(errs...)
}

func sourcesRun(before, now state) error {
	var errs []error
	for i, s := range now.Books.Sources {
		if s.Ended != (s.Name == "clip") || !s.Ended && s.Captured == before.Books.Sources[i].Captured {
			errs = append(errs, fmt.Errorf("source %s: ended %v, captured %d", s.Name, s.Ended, s.Captured))
		}
	}
	return errors.Join(append(errs, errorf(len(now.Books.Sources) == 3, "%d sources", len(now.Books.Sources)))...)
}

func outputsRun(before, now state) error {
	var errs []error
	was := map[string]uint64{}
	for _, o := range before.Books.Outputs {
		was[o.Name] = o.Delivered
	}
	for _, o := range now.Books.Outputs {
		want := pipeline.Running
		if o.Name == "once" {
			want = pipeline.Ended
		}
		if o.State != want || want == pipeline.Running && o.Delivered <= was[o.Name] {
			errs = append(errs, fmt.Errorf("output %s is %v (%s), delivered %d", o.Name, o.State, o.Error, o.Delivered))
		}
	}
	for _, o := range now.Outputs {
		if o.Name == "live" {
			errs = append(errs, errorf(len(o.Readers) == 2, "live has the readers %+v", o.Readers))
		}
	}
	return errors.Join(append(errs, errorf(len(now.Books.Outputs) == 8, "%d outputs", len(now.Books.Outputs)))...)
}

// holdings are the resources of the service's process. Memory is in KiB. file is the part that maps the program's file.
type holdings struct {
	goroutines, files, resident, file float64
}

// holds returns the holdings after a garbage collection.
func (w *world) holds() (h holdings, err error) {
	if err := w.service.control(cards[0].seed, "collect"); err != nil {
		return h, err
	}
	s, err := w.readState()
	p := w.service.process()
	if err != nil || p == nil {
		return h, errors.Join(err, errorf(p != nil, "it does not run"))
	}
	status := read(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	kib := func(name string) float64 {
		m := regexp.MustCompile(`(?m)^` + name + `:\s+(\d+) kB$`).FindStringSubmatch(status)
		v, _ := strconv.ParseFloat(append(m, "", "")[1], 64) // 0 if invalid
		return v
	}
	return holdings{s.metric("go_goroutines"), s.metric("process_open_fds"), kib("VmRSS"), kib("RssFile")}, nil
}

// within returns an error if more is held than before. It tolerates some goroutines and files, which come and go with
// connections.
func (h holdings) within(before holdings) error {
	fine := h.goroutines <= before.goroutines+8 && h.files <= before.files+4 && h.resident <= before.resident*1.05
	return errorf(fine, "the process holds %+v, and before %+v", h, before)
}

var (
	outputBooks = regexp.MustCompile(`(?m)^(\w+): captured (\d+) = delivered (\d+) \+ dropped (\d+)`)
	sourceBooks = regexp.MustCompile(`(?m)^(\w+): captured (\d+), lost (\d+)`)
)

// sourceOf maps an output to its source.
var sourceOf = map[string]string{
	"raw": "front", "live": "front", "frames": "front", "kept": "rear", "shared": "rear", "numbers": "rear", "back": "rear", "once": "clip",
}

// checkBooks checks the summary of a process that has ended in order. A process that had to abandon a part has none. The
// counters of an output that waited at the start, as said shows, begin when it is opened.
func checkBooks(summary, said string) error {
	if strings.Contains(summary, "not everything has ended in time") {
		return nil
	}
	var errs []error
	number := func(text string) int { n, _ := strconv.Atoi(text); return n } // cannot fail: digits
	captured := map[string]int{}
	for _, m := range sourceBooks.FindAllStringSubmatch(summary, -1) {
		captured[m[1]] = number(m[2])
	}
	list := outputBooks.FindAllStringSubmatch(summary, -1)
	for _, m := range list {
		all, delivered, dropped := number(m[2]), number(m[3]), number(m[4])
		waited := strings.Contains(said, `msg="output cannot be opened yet, and is tried again" output=`+m[1])
		if all != delivered+dropped || all > captured[sourceOf[m[1]]] || all < captured[sourceOf[m[1]]] && !waited {
			errs = append(errs, fmt.Errorf("books of %s: %s; its source captured %d", m[1], m[0], captured[sourceOf[m[1]]]))
		}
	}
	return errors.Join(append(errs, errorf(len(list) == len(sourceOf), "books of %d outputs:\n%s", len(list), summary))...)
}

var recordingBegins = regexp.MustCompile(`msg="recording begins" output=(\w+) file=(\S+)`)

// checkRecordings checks that each recording of an ended process is readable, and either finished or named in the log.
func (w *world) checkRecordings(p *process) error {
	var errs []error
	said := p.said()
	for _, m := range recordingBegins.FindAllStringSubmatch(said, -1) {
		path := filepath.Join(w.disk.behind, "recordings", filepath.Base(m[2]))
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			continue // it was deleted as the oldest
		}
		out, err := exec.Command(w.service.program, "record", "verify", "--json", path).CombinedOutput()
		report, jsonErr := unmarshal[record.Report](out)
		if jsonErr != nil {
			errs = append(errs, fmt.Errorf("%s cannot be read: %w, %s", path, err, out))
			continue
		}
		told := slices.ContainsFunc(strings.Split(said, "\n"), func(line string) bool {
			return !strings.Contains(line, "level=INFO") && (strings.Contains(line, filepath.Base(m[2])) || strings.Contains(line, "output="+m[1]))
		})
		if !report.Finished && !told || len(report.Wrong) > record.Holds {
			errs = append(errs, fmt.Errorf("%s is left behind: %+v; the log tells of it: %v", path, report, told))
		}
	}
	return errors.Join(errs...)
}
