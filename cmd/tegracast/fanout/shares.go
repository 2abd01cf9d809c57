// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"fmt"
	"io"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/share"
)

// Shares are the outputs that other processes map. The zero Shares has none.
type Shares struct{ list[*share.Sink] }

// Open opens an output. Errors are those of share.New.
func (s *Shares) Open(c share.Config, f pipeline.Format) (*share.Sink, error) {
	sink, err := share.New(c, f)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, named[*share.Sink]{c.Name, sink})
	return sink, nil
}

// Close closes an output, which does not run any more.
func (s *Shares) Close(name string) error {
	s.mu.Lock()
	gone := s.take(name)
	s.mu.Unlock()
	return gone.Close()
}

// Takers are those who take the outputs.
func (s *Shares) Takers() (all []Takers) {
	for _, x := range s.open() {
		st := x.is.Stats()
		all = append(all, Takers{x.name, len(st.Consumers), "processes", st.Lost})
	}
	return all
}

// Print prints what consumers have got of each output.
func (s *Shares) Print(w io.Writer) {
	for _, x := range s.open() {
		st := x.is.Stats()
		fmt.Fprintf(w, "%s shared: %d consumers now, %d before; %d frames, lost %d\n", x.name, len(st.Consumers), st.Gone, st.Frames, st.Lost)
		for _, c := range st.Consumers {
			fmt.Fprintf(w, "%s to %v\n", x.name, c)
		}
	}
}

// Describe implements prometheus.Collector: outputs come and go.
func (s *Shares) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (s *Shares) Collect(ch chan<- prometheus.Metric) {
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
