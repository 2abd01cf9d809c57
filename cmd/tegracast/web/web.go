// SPDX-License-Identifier: Apache-2.0

package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/accept"
	"github.com/tegracast/tegracast/pipeline/flood"
	"github.com/tegracast/tegracast/pipeline/guesses"
	"github.com/tegracast/tegracast/pipeline/record"
)

// Config is the configuration of a server.
type Config struct {
	Socket  string                // path of an additional Unix socket, whose clients need no key; empty: none
	Access  Access                // for clients that connect to the TCP address
	Version string                // version of the program
	Host    string                // name of the machine
	Model   string                // name of the board; empty: not known
	Stats   func() pipeline.Stats // the graph's statistics
	Outputs func() []Output       // the outputs and the operations that they allow
	Board   func() []Reading      // the board's sensors; nil: none
	Lines   func() []Line         // the board's lines; nil: none
	Clocks  func() []Clock        // the cards' clocks that follow another one; nil: none
	Groups  func() []Group        // nil: none
	Bus     func() *Bus           // nil: none
	// View opens a view of an output, and SDP describes its stream. They return ErrNoOutput if there is none of that
	// name.
	View func(output string) (View, error)
	SDP  func(output string) ([]byte, error)
	// Still returns the next frame of an output as a file: png is the picture, dng the samples of the source's sensor,
	// both at full size. It returns ErrNoOutput if there is none of that name.
	Still func(ctx context.Context, output, kind string) (Still, error)
	// Health reports whether every output is armed, and the part of the pipeline that is stalled, or nil.
	Health  func() (ready bool, stalled error)
	Metrics []prometheus.Collector // additional metrics
	// Trigger triggers the recording of an output. found is false if there is no recording of that name.
	Trigger func(output, cause string) (found bool, err error)
	// Recordings gives access to the files of recordings; nil: there is none.
	Recordings *record.Recordings
	Events     *Events // nil: no events
	// Send adds a destination, host:port, to an output's stream and returns the SDP. Unsend removes it. They return
	// ErrNoOutput if there is no stream of that name. Unsend returns ErrDestination if no client has added the
	// destination.
	Send   func(ctx context.Context, output, destination string) (sdp []byte, err error)
	Unsend func(output, destination string) error
	// Switch starts or stops an output. It returns ErrNoOutput if there is none of that name.
	Switch       func(ctx context.Context, output string, on bool) error
	Settings     Settings     // nil: nothing can be set
	Configurator Configurator // nil: the configuration can be neither read nor changed
	// WHEP answers requests that begin, change or end WebRTC sessions of an output's viewers (/NAME/whep). They have
	// the path value "name" and, for an existing session, "session". nil: there are no such sessions.
	WHEP   http.Handler
	Logger *slog.Logger

	sampler *sampler
	start   int64  // when the server began, in ms of Unix time: numbers of samples and records begin again with it
	listen  string // host:port
	profile bool   // also serve /debug/pprof/

	patience time.Duration // maximum wait for a picture, and maximum time of its transfer; 0: firstWait, maxAnswer
}

// A Server answers GET /metrics, /healthz (503 and the reason while the pipeline is stalled) and /readyz (503 until
// every output is armed). Clients with a key (Config.Access; 401 without one, 429 after ten wrong passwords) and
// clients of Config.Socket get a page (/), the state (/api/v1/status; /api/v1/stream as it changes), events as they
// occur (/api/v1/events), and for each output the description of its stream (/NAME.sdp), the current picture
// (/NAME.jpg; at full size /NAME.png, and as the sensor's samples /NAME.dng) and moving pictures (/NAME.mjpeg; 409: the
// output cannot be shown). They can begin WebRTC sessions (POST /NAME/whep), send an output's stream to further
// destinations (PUT and DELETE of /api/v1/outputs/NAME/destinations/HOST:PORT), trigger recordings (POST
// /record/NAME/trigger, 404: there is no such recording, 409: it cannot be triggered), list, get and delete the files of
// recordings (/api/v1/recordings), start and stop outputs (POST /api/v1/outputs/NAME/start and stop), set cameras and
// isps, and read and change the configuration (/api/v1/config). A request with a host name that is not this machine's
// gets 421.
//
// At most 32 clients are connected (a further one closes the one that has been idle for the longest time), at most 24
// of them from one address. At a time, at most 8 get pictures, 8 receive events, 16 follow the state, 4 begin or end a
// session, 4 add or remove destinations, 4 start or stop outputs, 4 set cameras or isps, 8 get files of recordings, 2
// list or delete them, one takes a picture at full size, one reads or changes the configuration, one gets metrics, and
// one gets the page or the state or triggers a recording, so that clients cannot starve the stream.
type Server struct {
	addr    net.Addr
	servers []listening
	sampler *sampler
}

// listening is an HTTP server and its listener.
type listening struct {
	*http.Server
	at net.Listener
}

// New opens the address and the socket. Run releases them; without Run, Close must be called.
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
	l, err := c.listenTCP()
	if err != nil {
		return nil, err
	}
	if err := c.Access.check(l.Addr()); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	errorLog := slog.NewLogLogger(flood.Logger(c.Logger).Handler(), slog.LevelWarn) // each connection without TLS would be a line
	ended := make(chan struct{})
	if c.Outputs == nil {
		c.Outputs = func() []Output { return nil }
	}
	c.sampler, c.start = newSampler(c.Stats, c.Outputs), time.Now().UnixMilli()
	d := c.newDoor(l.Addr())
	answers := c.handler(promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorLog: errorLog}), d, ended)
	s := &Server{addr: l.Addr(), sampler: c.sampler}
	add := func(l net.Listener, open *connections) {
		s.servers = append(s.servers, listening{&http.Server{
			Handler: d.names.only(open.reserveForHealth(c.health(), answers)), ErrorLog: errorLog,
			ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
			HTTP2:     &http.HTTP2Config{MaxConcurrentStreams: maxConnections, SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second},
			ConnState: open.watch, ConnContext: withPeer,
		}, l})
	}
	add(c.Access.secure(accept.Listener(newSpareListener(l), c.Logger)), newConnections(&c.Access))
	s.servers[0].RegisterOnShutdown(func() { close(ended) })
	if c.Socket != "" {
		local, err := listenLocal(c.Socket)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		add(accept.Listener(local, c.Logger), newConnections(nil))
	}
	return s, nil
}

// listenTCP opens the address. The kernel closes a connection whose client takes nothing for maxAnswer: without that, the
// buffers of a connection would keep a place for minutes, as events fill them slowly.
func (c *Config) listenTCP() (net.Listener, error) {
	most := cmp.Or(c.patience, maxAnswer)
	listen := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		failed := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(most.Milliseconds()))
		})
		return errors.Join(failed, err)
	}}
	listen.SetMultipathTCP(false) // it does not know the option
	return listen.Listen(context.Background(), "tcp", c.listen)
}

func (c *Config) newDoor(listen net.Addr) *door {
	if c.Access.Guesses == nil {
		c.Access.Guesses = &guesses.Guesses{}
	}
	return &door{Access: &c.Access, names: newNames(&c.Access), cookie: cookieName(listen), log: c.Logger}
}

// handler returns a handler for all requests but those for health.
func (c *Config) handler(metrics http.Handler, d *door, ended <-chan struct{}) http.Handler {
	mux := http.NewServeMux()
	newClass(mux, maxAtWork).Handle("GET /metrics", metrics)
	mux.Handle("/", d.private(readBody(c.routes(ended))))
	return mux
}

// routes returns a handler for clients that have a key, which is the token or the password.
func (c *Config) routes(ended <-chan struct{}) http.Handler {
	mux := http.NewServeMux()
	page := newClass(mux, maxAtWork)
	page.Handle("POST /record/{name}/trigger", http.HandlerFunc(c.trigger))
	c.addPage(page)
	c.addDestinations(newClass(mux, maxLookups))
	c.addControls(mux)
	if c.Recordings != nil {
		c.addRecordings(mux)
	}
	if c.Settings != nil {
		c.addSettings(mux)
	}
	if c.Configurator != nil {
		c.addConfiguration(mux)
	}
	mux.Handle("GET /{file}", c.files())
	mux.Handle("GET /api/v1/stream", c.streamState(ended))
	if c.Events != nil {
		mux.Handle("GET /api/v1/events", c.events(ended))
	}
	if c.WHEP != nil {
		sessions := atMost(maxBeginning, "begin to watch", c.WHEP)
		for _, pattern := range []string{"POST /{name}/whep", "DELETE /{name}/whep/{session}", "PATCH /{name}/whep/{session}"} {
			mux.Handle(pattern, sessions)
		}
		for _, method := range []string{"GET", "PUT", "PATCH", "DELETE", "OPTIONS"} { // refused, or answered, by RFC 9725 §4.2
			mux.Handle(method+" /{name}/whep", sessions)
		}
		for _, method := range []string{"GET", "PUT", "OPTIONS"} {
			mux.Handle(method+" /{name}/whep/{session}", sessions)
		}
	}
	if c.profile {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// health returns a handler that answers whether the appliance works and is ready. It does not block.
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

// Addr returns the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.addr }

// Close releases the address and the socket, and closes all connections.
func (s *Server) Close() error {
	var errs []error
	for _, l := range s.servers {
		errs = append(errs, l.Close(), ignoreClosed(l.at.Close()))
	}
	return errors.Join(errs...)
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Run answers requests until ctx ends or a server fails. Then it waits up to a second for requests in progress, and
// returns the error of the server that failed, or nil.
func (s *Server) Run(ctx context.Context) error {
	ended := make(chan error, len(s.servers))
	for _, l := range s.servers {
		go func() { ended <- l.Serve(l.at) }()
	}
	running := len(s.servers)
	sampling, endSampling := context.WithCancel(ctx)
	var sampled sync.WaitGroup
	sampled.Go(func() { s.sampler.run(sampling) })
	defer sampled.Wait() // ends: endSampling runs before
	defer endSampling()
	var failed error
	select {
	case failed = <-ended:
		running--
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	for _, l := range s.servers {
		if l.Shutdown(bounded) != nil {
			_ = l.Server.Close() // a client is slow
		}
	}
	for range running {
		<-ended // ends: the servers are closed
	}
	return failed
}
