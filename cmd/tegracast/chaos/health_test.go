// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
)

// clientOf returns a client like that of a program on the service's machine. Each request uses a new connection.
func clientOf(n *network, password string) *http.Client {
	return &http.Client{Timeout: 20 * time.Second, Transport: programtest.WithKey(&http.Transport{
		DialContext: func(ctx context.Context, kind, address string) (c net.Conn, err error) {
			return n.dial(ctx, kind, address)
		},
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}, func() (string, error) { return password, nil })}
}

// get requests a page from the service.
func get(c *http.Client, path string) (status int, body []byte, err error) {
	r, err := c.Get("https://127.0.0.1:8443" + path)
	if err != nil {
		return 0, nil, err
	}
	defer r.Body.Close()
	body, err = io.ReadAll(r.Body)
	return r.StatusCode, body, err
}

// A lateness measures how late a sleeping thread of this process wakes up.
type lateness struct {
	mu   sync.Mutex
	seen []late // the oldest first
}

type late struct {
	at time.Time
	by time.Duration
}

// lateTick is the time that the thread sleeps, and lateKept the time that it keeps its measurements.
const (
	lateTick = time.Millisecond
	lateKept = 10 * time.Second
)

// watch measures until ctx ends.
func (l *lateness) watch(ctx context.Context) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for ctx.Err() == nil {
		began := time.Now()
		_ = unix.Nanosleep(&unix.Timespec{Nsec: int64(lateTick)}, nil)
		now := time.Now()
		by := now.Sub(began) - lateTick
		if by < lateTick {
			continue
		}
		l.mu.Lock()
		l.seen = append(l.seen, late{now, by})
		for len(l.seen) > 0 && now.Sub(l.seen[0].at) > lateKept {
			l.seen = l.seen[1:]
		}
		l.mu.Unlock()
	}
}

// since returns the total lateness of the thread since a time.
func (l *lateness) since(t time.Time) (sum time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.seen {
		if one.at.After(t) {
			sum += one.by
		}
	}
	return sum
}

// delays are the times that runnable threads of some processes have waited for a processor (the kernel's
// scheduler/sched-stats.rst: the second number).
type delays map[string]time.Duration

func delaysOf(pids ...int) delays {
	w := delays{}
	for _, pid := range pids {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		for _, file := range files {
			var ran, wait int64                             // ns
			if text, err := os.ReadFile(file); err == nil { // the thread may have ended
				_, _ = fmt.Sscan(string(text), &ran, &wait)
				w[file] = time.Duration(wait)
			}
		}
	}
	return w
}

// since returns the total waiting time of the threads after before.
func (w delays) since(before delays) (sum time.Duration) {
	for file, wait := range w {
		sum += wait - before[file]
	}
	return sum
}

// memoryStalls returns for how long tasks of this machine have waited for memory so far, such as the service whose memory
// is limited (the kernel's accounting/psi.rst, some). It is 0 if the kernel does not count that.
func memoryStalls() time.Duration {
	var us int64
	if text, err := os.ReadFile("/proc/pressure/memory"); err == nil {
		_, total, _ := strings.Cut(string(text), "total=")
		_, _ = fmt.Sscan(total, &us)
	}
	return time.Duration(us) * time.Microsecond
}

// healthLimit is the maximum delay of an answer of /healthz, in addition to the lateness of the machine.
const healthLimit = 50 * time.Millisecond

// A healthWatch requests /healthz, and measures with each request how late the machine is: how long threads of the test
// and the service wait for a processor or for memory, and how late a sleeping thread wakes up.
type healthWatch struct {
	service  *service
	late     *lateness
	client   *http.Client
	said     int // the last status
	answered int
	longest  time.Duration // longest answer, without the lateness
	stop     context.CancelFunc
	stopped  chan struct{}
}

// watchHealth sends ten requests per second while the service runs, until end is called.
func (w *world) watchHealth() *healthWatch {
	ctx, cancel := context.WithCancel(context.Background())
	h := &healthWatch{service: w.service, late: w.late, client: clientOf(w.here, w.password), stop: cancel, stopped: make(chan struct{})}
	go func() {
		defer close(h.stopped)
		for ctx.Err() == nil {
			time.Sleep(100 * time.Millisecond)
			if p := h.service.process(); p != nil {
				h.ask(p)
			}
		}
	}()
	return h
}

// end stops the requests.
func (h *healthWatch) end() {
	h.stop()
	<-h.stopped
	h.service.log.logf("/healthz was answered %d times, within %v and the lateness of the machine", h.answered, h.longest.Round(time.Millisecond))
}

// endsSoon is the time within which the end of a process that has interrupted a request is noticed.
const endsSoon = 200 * time.Millisecond

// ask sends one request. A process that does not listen yet, or has ended meanwhile, need not answer.
func (h *healthWatch) ask(p *process) {
	before, stalls, began := delaysOf(os.Getpid(), p.cmd.Process.Pid), memoryStalls(), time.Now()
	status, body, err := get(h.client, "/healthz")
	took := time.Since(began)
	late := delaysOf(os.Getpid(), p.cmd.Process.Pid).since(before) + h.late.since(began) + memoryStalls() - stalls
	if err != nil {
		time.Sleep(endsSoon)
	}
	listens, ends := h.service.answered(p, err == nil, began)
	log := h.service.log
	switch {
	case ends || err != nil && !listens:
	case err != nil && took < late: // such as by a server that has waited 5 s for a request
		log.logf("/healthz: %v after %v, the machine was late by %v", err, took.Round(time.Millisecond), late.Round(time.Millisecond))
	case err != nil:
		log.fail("/healthz: %v after %v, the machine was late by %v", err, took.Round(time.Millisecond), late.Round(time.Millisecond))
	case took > healthLimit+late:
		log.fail("/healthz: %d after %v, the machine was late by %v", status, took.Round(time.Millisecond), late.Round(time.Millisecond))
	case status != h.said:
		h.said = status
		log.logf("/healthz: %d %s", status, body)
	}
	if err == nil {
		h.answered++
		h.longest = max(h.longest, took-late)
	}
}

// errorf returns an error, or nil if fine is true.
func errorf(fine bool, format string, values ...any) error {
	if fine {
		return nil
	}
	return fmt.Errorf(format, values...)
}
