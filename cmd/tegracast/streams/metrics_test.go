// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/rtptest"
	"github.com/tegracast/tegracast/pipeline/rtp/send"
)

// TestMetricsOfReaders checks that metrics have no series for each reader and each client's destination, which come and
// go with different ports.
func TestMetricsOfReaders(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	s := New(log)
	defer s.Close()
	stream := rtp.Stream{Payload: rtp.Raw}
	sink, err := send.New(send.Config{Stream: stream, Destinations: []string{"127.0.0.1:5004"}, Logger: log}, rtptest.Format(t, pipeline.UYVY, 64, 48, 30))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sink.Close() }()
	if err := s.Add("raw", sink, nil, log); err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(config.RTSP{Listen: "127.0.0.1:0"}, log); err != nil {
		t.Fatal(err)
	}
	readers := func() int {
		list, _ := s.Report("raw", "")
		return len(list)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(s)
	for i := range 3 {
		reader := play(t, s.URL("raw"))
		await(t, func() bool { return readers() == 1 })
		guest := fmt.Sprintf("127.0.0.1:%d", 6000+2*i)
		if _, err := s.Send(t.Context(), "raw", guest); err != nil {
			t.Fatal(err)
		}
		if got := destinations(t, registry); !slices.Equal(got, []string{"127.0.0.1", "127.0.0.1:5004", "RTSP over TCP"}) {
			t.Errorf("the metrics have the destinations %q", got)
		}
		if err := s.Unsend("raw", guest); err != nil {
			t.Error(err)
		}
		_ = reader.Close()
		await(t, func() bool { return readers() == 0 })
	}
	if got := destinations(t, registry); !slices.Contains(got, "RTSP over TCP") {
		t.Errorf("the readers have gone, and their counters with them: %q", got)
	}
}

// destinations returns the values of a label, sorted.
func destinations(t *testing.T, r *prometheus.Registry) (list []string) {
	t.Helper()
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() != "tegracast_rtp_packets_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "destination" {
					list = append(list, l.GetValue())
				}
			}
		}
	}
	slices.Sort(list)
	return list
}

// play starts a reader of a stream by RTSP over TCP.
func play(t *testing.T, from string) net.Conn {
	t.Helper()
	u, err := url.Parse(from)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	in, session := textproto.NewReader(bufio.NewReader(c)), ""
	for i, ask := range []string{"SETUP " + from + "/trackID=0 RTSP/1.0\r\nTransport: RTP/AVP/TCP;unicast;interleaved=0-1\r\n", "PLAY " + from + " RTSP/1.0\r\n"} {
		if _, err := fmt.Fprintf(c, "%sCSeq: %d\r\n%s\r\n", ask, i+1, session); err != nil {
			t.Fatal(err)
		}
		status, err := in.ReadLine()
		if err != nil || !strings.Contains(status, "200") {
			t.Fatal(status, err)
		}
		h, err := in.ReadMIMEHeader()
		if err != nil {
			t.Fatal(err)
		}
		id, _, _ := strings.Cut(h.Get("Session"), ";")
		session = "Session: " + id + "\r\n"
	}
	return c
}

func await(t *testing.T, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it takes longer than a minute")
		}
	}
}
