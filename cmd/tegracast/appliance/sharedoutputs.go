// SPDX-License-Identifier: Apache-2.0

package appliance

import (
	"fmt"
	"io"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/printable"
	"github.com/tegracast/tegracast/pipeline/share"
)

// sharedOutputs are the open outputs that other processes can map. The zero value has none.
type sharedOutputs struct{ list[*share.Sink] }

// Open opens an output. Errors are those of share.New.
func (s *sharedOutputs) Open(c share.Config, f pipeline.Format) (*share.Sink, error) {
	sink, err := share.New(c, f)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, named[*share.Sink]{c.Name, sink})
	return sink, nil
}

// Close closes an output, which must not be running.
func (s *sharedOutputs) Close(name string) error {
	s.mu.Lock()
	gone := s.takeOutput(name)
	s.mu.Unlock()
	return gone.Close()
}

// consumers returns the number of consumers of each output, and the frames that they lost.
func (s *sharedOutputs) consumers() (all []consumerCount) {
	for _, x := range s.open() {
		st := x.is.Stats()
		all = append(all, consumerCount{x.name, len(st.Consumers), "processes", st.Lost})
	}
	return all
}

// Print prints what the consumers of each output have received.
func (s *sharedOutputs) Print(w io.Writer) {
	for _, x := range s.open() {
		st := x.is.Stats()
		fmt.Fprintf(w, "%s shared: %d consumers now, %d before; %d frames, lost %d\n", x.name, len(st.Consumers), st.Gone, st.Frames, st.Lost)
		for _, c := range st.Consumers {
			fmt.Fprintf(w, "%s to %s\n", x.name, printable.Text(c.String()))
		}
	}
}

// Describe implements prometheus.Collector. It sends nothing, because outputs come and go.
func (s *sharedOutputs) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (s *sharedOutputs) Collect(ch chan<- prometheus.Metric) {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("tegracast_share_"+name, help, []string{"output"}, nil)
	}
	consumers := desc("consumers", "Processes that take an output from shared memory.")
	held := desc("held_frames", "Frames in the hands of these processes.")
	frames := desc("frames_total", "Frames given to processes, to all of an output.")
	lost := desc("lost_frames_total", "Frames that processes wanted and were not ready for.")
	for _, x := range s.open() {
		st, n := x.is.Stats(), 0
		for _, c := range st.Consumers {
			n += c.Held
		}
		ch <- prometheus.MustNewConstMetric(consumers, prometheus.GaugeValue, float64(len(st.Consumers)), x.name)
		ch <- prometheus.MustNewConstMetric(held, prometheus.GaugeValue, float64(n), x.name)
		ch <- prometheus.MustNewConstMetric(frames, prometheus.CounterValue, float64(st.Frames), x.name)
		ch <- prometheus.MustNewConstMetric(lost, prometheus.CounterValue, float64(st.Lost), x.name)
	}
}
