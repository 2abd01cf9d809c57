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
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// clientOf asks the service as a program of its machine does. Each request has a connection of its own.
func clientOf(n *network) *http.Client {
	return &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, kind, address string) (c net.Conn, err error) {
			return n.dial(ctx, kind, address)
		},
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
}

// get asks the service for a page.
func get(c *http.Client, path string) (status int, body []byte, err error) {
	r, err := c.Get("https://127.0.0.1:8443" + path)
	if err != nil {
		return 0, nil, err
	}
	defer r.Body.Close()
	body, err = io.ReadAll(r.Body)
	return r.StatusCode, body, err
}

// A lateness is how much later than asked a sleeping thread of this process has woken up lately.
type lateness struct {
	mu   sync.Mutex
	seen []late // the oldest first
}

type late struct {
	at time.Time
	by time.Duration
}

// lateTick is how long the thread sleeps, and lateKept how long it remembers.
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

// since is for how long in all the thread was late from a time on.
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

// delays are for how long each thread of some processes, which was ready to run, has waited for a processor (the kernel's
// scheduler/sched-stats.rst: the second number).
type delays map[string]time.Duration

func delaysOf(pids ...int) delays {
	w := delays{}
	for _, pid := range pids {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		for _, file := range files {
			var ran, wait int64                             // ns
			if text, err := os.ReadFile(file); err == nil { // a thread may have ended
				_, _ = fmt.Sscan(string(text), &ran, &wait)
				w[file] = time.Duration(wait)
			}
		}
	}
	return w
}

// since is for how long in all the threads have waited after before.
func (w delays) since(before delays) (sum time.Duration) {
	for file, wait := range w {
		sum += wait - before[file]
	}
	return sum
}

// healthLimit is how late an answer of /healthz may be, beyond the lateness of the machine.
const healthLimit = 50 * time.Millisecond

// A healthWatch asks for /healthz, and measures beside each request how late the machine is: for how long threads of the test and of the service
// wait for a processor, and by how much a thread that sleeps wakes up too late.
type healthWatch struct {
	service  *service
	late     *lateness
	client   *http.Client
	said     int // the last status
	answered int
	longest  time.Duration // that an answer has taken beyond the lateness
	stop     context.CancelFunc
	stopped  chan struct{}
}

// watchHealth asks ten times a second while the service is there, until end is called.
func (w *world) watchHealth() *healthWatch {
	ctx, cancel := context.WithCancel(context.Background())
	h := &healthWatch{service: w.service, late: w.late, client: clientOf(w.here), stop: cancel, stopped: make(chan struct{})}
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

// end ends it.
func (h *healthWatch) end() {
	h.stop()
	<-h.stopped
	h.service.log.say("/healthz was answered %d times, within %v and the lateness of the machine", h.answered, h.longest.Round(time.Millisecond))
}

// endsSoon is within which the end of a process is known that has cut off a request by it.
const endsSoon = 200 * time.Millisecond

// ask asks once. A process that does not listen yet, or has ended meanwhile, need not answer.
func (h *healthWatch) ask(p *process) {
	before, began := delaysOf(os.Getpid(), p.cmd.Process.Pid), time.Now()
	status, body, err := get(h.client, "/healthz")
	took := time.Since(began)
	late := delaysOf(os.Getpid(), p.cmd.Process.Pid).since(before) + h.late.since(began)
	if err != nil {
		time.Sleep(endsSoon)
	}
	listens, ends := h.service.answered(p, err == nil, began)
	log := h.service.log
	switch {
	case ends || err != nil && !listens:
	case err != nil && took < late: // such as that of a server which has waited 5 s for a request
		log.say("/healthz: %v after %v, the machine was late by %v", err, took.Round(time.Millisecond), late.Round(time.Millisecond))
	case err != nil:
		log.fail("/healthz: %v after %v, the machine was late by %v", err, took.Round(time.Millisecond), late.Round(time.Millisecond))
	case took > healthLimit+late:
		log.fail("/healthz: %d after %v, the machine was late by %v", status, took.Round(time.Millisecond), late.Round(time.Millisecond))
	case status != h.said:
		h.said = status
		log.say("/healthz: %d %s", status, body)
	}
	if err == nil {
		h.answered++
		h.longest = max(h.longest, took-late)
	}
}

// errorf is an error, or nil where it is fine.
func errorf(fine bool, format string, values ...any) error {
	if fine {
		return nil
	}
	return fmt.Errorf(format, values...)
}
