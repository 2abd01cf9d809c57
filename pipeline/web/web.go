// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tegracast/tegracast/pipeline"
)

// Config is a server.
type Config struct {
	Listen  string                // host:port
	Profile bool                  // serve /debug/pprof/, too
	Version string                // of the program
	Stats   func() pipeline.Stats // the graph's books
	Outputs func() []Output       // what can be done with each of them
	Board   func() []Reading      // of its sensors; nil: nobody reads them
	Lines   func() []Line         // of the board; nil: there are none
	Bus     func() *Bus           // nil: there is none
	// View and SDP are a look at an output, and the description of its stream. They return ErrNoOutput where there is none of that name.
	View func(output string) (View, error)
	SDP  func(output string) ([]byte, error)
	// Still is the next frame of an output as a file: png is the picture, dng the samples of the source's sensor, both as large as they
	// are. It returns ErrNoOutput where there is none of that name.
	Still func(ctx context.Context, output, kind string) (Still, error)
	// Health says whether every output is armed, and what of the pipeline stalls; nil when nothing does.
	Health  func() (ready bool, stalled error)
	Metrics []prometheus.Collector // further ones
	// Trigger triggers the recording of an output. It returns false where there is none of that name.
	Trigger func(output, cause string) (found bool, err error)
	Events  *Events // what happened; nil: nobody is told
	// Send has an output's stream sent to one more destination, host:port, and describes it (SDP); Unsend ends that. They return ErrNoOutput
	// where there is no stream of that name, and ErrDestination where it is not sent there so.
	Send   func(ctx context.Context, output, destination string) (sdp []byte, err error)
	Unsend func(output, destination string) error
	// Switch starts or stops an output. It returns ErrNoOutput where there is none of that name.
	Switch       func(ctx context.Context, output string, on bool) error
	Settings     Settings     // nil: nothing can be set
	Configurator Configurator // nil: the configuration can be neither seen nor changed
	// WHEP begins and ends sessions of those who watch an output, by the values name and session of the path; nil: there are none.
	WHEP   http.Handler
	Logger *slog.Logger
	Access *Access // for other machines; nil: they have none but to metrics, health and triggers

	door     *door         // nil: there is no password
	patience time.Duration // for a picture to come, and to be taken; 0: firstWait, maxAnswer
}

// A Server answers GET /metrics, /healthz (503 and the reason while the pipeline stalls) and /readyz (503 until every output is
// armed), and POST /record/NAME/trigger (404: there is no such recording, 409: it cannot be triggered). To this machine alone,
// and to others by TLS with the password of Config.Access (401 without it, 429 after ten wrong ones), it shows a page (/), the
// state of everything (/api/v1/status), events as they come (/api/v1/events), and for each output its stream's description
// (/NAME.sdp), the picture of now (/NAME.jpg; at full size /NAME.png, and as the sensor's samples /NAME.dng) and moving pictures
// (/NAME.mjpeg; 409: the output cannot be shown), and it begins sessions of WebRTC (POST /NAME/whep), sends an output's stream to
// further destinations (PUT and DELETE of /api/v1/outputs/NAME/destinations/HOST:PORT), starts and stops outputs (POST
// /api/v1/outputs/NAME/start and stop), and sets cameras and isps. The configuration (/api/v1/config) needs the password, if there
// is one, of clients of this machine, too. At most 32 clients are connected (for a further one the most silent is closed), 8 of them
// watch moving pictures, 8 listen to events, 4 begin or end a session, 4 start or stop outputs, 4 set cameras or isps, one takes a picture
// at full size, one has the configuration, and one other answer is made at a time: clients cannot starve the stream.
type Server struct {
	listener net.Listener
	http     *http.Server
}

// New takes the address. Run, or Close when it is never run, gives it back.
func New(c Config) (*Server, error) {
	registry := prometheus.NewRegistry()
	all := []prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), &books{c.Stats, c.Health, c.Outputs},
	}
	for _, m := range append(all, c.Metrics...) {
		if err := registry.Register(m); err != nil {
			return nil, fmt.Errorf("metrics: %w", err)
		}
	}
	if c.Access != nil {
		var err error
		if c.door, err = newDoor(c.Access, c.Logger); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, err
	}
	l = newSpareListener(l)
	if c.Access != nil {
		l = c.Access.listen(l)
	}
	open := newConnections()
	ended := make(chan struct{})
	errorLog := slog.NewLogLogger(c.Logger.Handler(), slog.LevelWarn)
	routes := c.routes(promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorLog: errorLog}), ended)
	s := &http.Server{
		Handler: open.reserveForHealth(c.health(), routes), ErrorLog: errorLog,
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		ConnState: open.watch, ConnContext: withConn,
	}
	s.RegisterOnShutdown(func() { close(ended) })
	return &Server{l, s}, nil
}

// routes says who answers what.
func (c *Config) routes(metrics http.Handler, ended <-chan struct{}) http.Handler {
	mux := http.NewServeMux()
	page := newClass(mux, maxAtWork)
	newClass(mux, maxAtWork).Handle("GET /metrics", c.guarded(metrics))
	// A page of another site cannot trigger through a browser of this machine.
	page.Handle("POST /record/{name}/trigger", c.guarded(http.NewCrossOriginProtection().Handler(http.HandlerFunc(c.trigger))))
	c.addPage(page)
	c.addDestinations(newClass(mux, maxLookups))
	c.addControls(mux)
	if c.Settings != nil {
		c.addSettings(mux)
	}
	if c.Configurator != nil {
		c.addConfiguration(mux)
	}
	mux.Handle("GET /{file}", c.files())
	if c.Events != nil {
		mux.Handle("GET /api/v1/events", c.private(c.tell(ended)))
	}
	if c.WHEP != nil {
		sessions := c.private(http.NewCrossOriginProtection().Handler(atMost(maxBeginning, "begin to watch", c.WHEP)))
		for _, pattern := range []string{"POST /{name}/whep", "DELETE /{name}/whep/{session}", "PATCH /{name}/whep/{session}"} {
			mux.Handle(pattern, sessions)
		}
	}
	if c.Profile {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// health answers whether the appliance works and is ready. It waits for nothing.
func (c *Config) health() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, stalled := c.Health()
		answer(w, stalled)
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		ready, _ := c.Health()
		if ready {
			answer(w, nil)
		} else {
			answer(w, errors.New("not every output is armed"))
		}
	})
	return buffered(mux, maxAnswer)
}

func (c *Config) trigger(w http.ResponseWriter, r *http.Request) {
	found, err := c.Trigger(r.PathValue("name"), "http from "+r.RemoteAddr)
	switch {
	case !found:
		http.Error(w, "there is no recording of that name", http.StatusNotFound)
	case err != nil:
		http.Error(w, err.Error(), http.StatusConflict)
	default:
		answer(w, nil)
	}
}

func answer(w http.ResponseWriter, wrong error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if wrong != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, wrong)
		return
	}
	fmt.Fprintln(w, "ok")
}

// Addr is the address that it listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Run answers until ctx ends, and gives requests that are under way a second.
func (s *Server) Run(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- s.http.Serve(s.listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if s.http.Shutdown(bounded) != nil {
		_ = s.http.Close() // somebody reads slowly
	}
	<-ended // ends: the server is closed
	return nil
}
