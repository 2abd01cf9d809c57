package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tegracast/tegracast/pipeline/web"
)

// WebConfig is what the appliance tells over HTTP.
type WebConfig struct {
	Listen  string `yaml:"listen,omitempty" jsonschema_description:"host:port of metrics and health (default 127.0.0.1:8080), or none."`
	Profile bool   `yaml:"profile,omitempty" jsonschema_description:"Serve Go's profiles under /debug/pprof/, too. Only on a loopback address."`
}

// defaultListen is where nobody outside of this machine can ask.
const (
	defaultListen = "127.0.0.1:8080"
	noListen      = "none"
)

func (d *document) checkWeb() error {
	if d.Web.Listen == "" || d.Web.Listen == noListen {
		return nil
	}
	address, err := netip.ParseAddrPort(d.Web.Listen)
	switch {
	case err != nil:
		return d.errorAt("$.web.listen", "%q: write an address and a port, such as %s, or %s", d.Web.Listen, defaultListen, noListen)
	case d.Web.Profile && !address.Addr().IsLoopback():
		return d.errorAt("$.web.profile", "profiles tell what is in memory: they need a loopback address such as %s", defaultListen)
	}
	return nil
}

// webRunner is the server of now.
type webRunner struct {
	health *health
	cancel context.CancelFunc // nil: there is none
	ended  chan struct{}
}

// open takes the place of the server that there was.
func (w *webRunner) open(ctx context.Context, a *appliance, c WebConfig) error {
	w.close()
	server, err := a.openWeb(c, w.health)
	if err != nil || server == nil {
		return err
	}
	ctx, w.cancel = context.WithCancel(ctx)
	w.ended = make(chan struct{})
	go func(ended chan struct{}) {
		defer close(ended)
		if err := server.Run(ctx); err != nil {
			a.env.log.Error("metrics have ended", "error", err)
		}
	}(w.ended)
	return nil
}

func (w *webRunner) close() {
	if w.cancel != nil {
		w.cancel()
		<-w.ended
		w.cancel = nil
	}
}

// openWeb takes the address. The default one may be taken by somebody else; one that the configuration names may not.
func (a *appliance) openWeb(c WebConfig, h *health) (*web.Server, error) {
	if c.Listen == noListen {
		return nil, nil
	}
	server, err := web.New(web.Config{
		Listen: cmp.Or(c.Listen, defaultListen), Profile: c.Profile, Stats: a.stats, Health: h.state,
		Metrics: []prometheus.Collector{&streamMetrics{a}, &boardMetrics{os.DirFS("/")}, &gpioMetrics{a.pins}, &hardwareMetrics{a}, buildInfo()}, Logger: a.env.log,
	})
	switch {
	case err == nil:
		if l, ok := server.Addr().(*net.TCPAddr); ok && !l.IP.IsLoopback() {
			a.env.log.Warn("metrics and health can be read by whoever reaches this address", "listen", server.Addr())
		}
		return server, nil
	case c.Listen == "" && errors.Is(err, syscall.EADDRINUSE):
		a.env.log.Warn("no metrics: another program has the address; give web.listen another one, or none", "listen", defaultListen)
		return nil, nil
	}
	return nil, fmt.Errorf("web.listen: %w", err)
}

// buildInfo says which program this is.
func buildInfo() prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tegracast_build_info", Help: "1; the labels say which program this is.",
		ConstLabels: prometheus.Labels{"version": releaseVersion, "commit": commitName(), "goversion": runtime.Version()},
	})
	g.Set(1)
	return g
}

// streamMetrics are the counters of the RTP streams.
type streamMetrics struct{ a *appliance }

// Describe implements prometheus.Collector: destinations come and go.
func (m *streamMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m *streamMetrics) Collect(ch chan<- prometheus.Metric) {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("tegracast_rtp_"+name, help, []string{"output", "destination"}, nil)
	}
	counters := []*prometheus.Desc{
		desc("packets_total", "Packets that the kernel has taken."),
		desc("bytes_total", "Bytes of these packets, with RTP's header and without UDP's."),
		desc("cut_frames_total", "Frames that were given up, wholly or in part."),
		desc("dropped_packets_total", "Packets of these frames."),
		desc("refused_total", "Answers that nobody listens."),
		desc("errors_total", "Errors of the system's calls."),
	}
	lost := desc("receiver_lost_ratio", "Share of packets lost, by the receiver's last report.")
	jitter := desc("receiver_jitter_seconds", "Jitter of the packets' arrival, by the receiver's last report.")
	for _, s := range m.a.running() {
		for _, d := range s.sink.Stats().Destinations {
			for i, n := range []uint64{d.Packets, d.Bytes, d.Cut, d.Dropped, d.Refused, d.Errors} {
				ch <- prometheus.MustNewConstMetric(counters[i], prometheus.CounterValue, float64(n), s.name, d.Address)
			}
			if r, ok := d.LastReport(); ok {
				ch <- prometheus.MustNewConstMetric(lost, prometheus.GaugeValue, r.FractionLost, s.name, d.Address)
				ch <- prometheus.MustNewConstMetric(jitter, prometheus.GaugeValue, r.Jitter.Seconds(), s.name, d.Address)
			}
		}
	}
}
