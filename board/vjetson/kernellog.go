// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
)

const (
	maxLine  = 4 << 10 // maximum length kept of a line, in bytes
	maxLines = 20_000  // maximum number of lines kept
	tailSize = 15      // lines that an error shows
	leadIn   = 3       // number of these lines that come before a panic's own
)

// faults matches the reports of a kernel in trouble (Linux 5.10 to 6.12). Lockdep, KASAN, slub, soft lockups and sleeping
// in the wrong place report BUG or WARNING.
var faults = regexp.MustCompile(strings.Join([]string{
	`Kernel panic - not syncing`, `Unable to handle kernel`, `Internal error: `, `\bOops\b`, `general protection fault`,
	`\bBUG[: ]`, `\bWARNING: `, `kernel BUG at`, `UBSAN: `, `refcount_t: `, `list_(add|del) corruption`,
	// memory
	`Object already free`, `Object padding`, `Poison overwritten`, `Slab cache still has objects`, `Bad (page|rss-counter|swap) `,
	`: bad p[4gmu]d `, `page allocation failure`, `vmalloc error: `, `Out of memory: `, `x86/PAT: .*(freeing invalid|expected mapping|conflicting)`,
	`kmemleak: (\d+ new suspected|Cannot|Memory pool empty|Kernel memory leak detector disabled)`,
	// locks, and waits that take too long
	`INFO: trying to register non-static key`, `rcu: INFO: .*stall`, `INFO: task .* blocked for more`, `cleanup_srcu_struct: Active`,
	`destroy_workqueue: .* busy`, `workqueue \S+: \w+\(\) isn't complete`, `unregister_netdevice: waiting for`,
	// devices
	`arm-smmu-v3 .*(\bevent 0x|CMDQ error|unexpected global error)`, `DMAR: .*fault`, `virtio_iommu \S+: .*fault`, `AMD-Vi: Event logged`,
	`DMA-API: .*(device driver|out of memory|ENOMEM|exceeded|overlapping)`, `irq \d+: nobody cared`, `cannot create duplicate filename`,
	`(EXT4-fs|Buffer I/O) error`,
}, "|"))

var (
	panicLine = regexp.MustCompile(`Kernel panic - not syncing`)
	stuckLine = regexp.MustCompile(`INFO: task .* blocked for more|rcu: INFO: .*stall|BUG: soft lockup`)
)

// kernelLog receives a console's bytes and finds faults in its lines.
type kernelLog struct {
	also io.Writer // nil: none
	most int       // number of lines kept

	mu       sync.Mutex
	part     []byte // of an unfinished line
	lines    []string
	dropped  int // number of lines before lines[0]
	faults   []string
	expected []*Expectation
	stuck    chan struct{} // closed at the first report of a task or a CPU that does not go on
	panicked chan struct{} // closed at a panic
	panicAt  int           // number of the panic's line, counting dropped ones
}

func newKernelLog(also io.Writer) *kernelLog {
	return &kernelLog{also: also, most: maxLines, stuck: make(chan struct{}), panicked: make(chan struct{})}
}

// Write implements io.Writer and never fails.
func (l *kernelLog) Write(p []byte) (int, error) {
	if l.also != nil {
		_, _ = l.also.Write(p) // the machine must not depend on this writer
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for rest := p; len(rest) > 0; {
		line, after, whole := bytes.Cut(rest, []byte{'\n'})
		l.part = append(l.part, line[:min(len(line), maxLine-len(l.part))]...)
		if rest = after; whole {
			l.line(strings.TrimRight(string(l.part), "\r"))
			l.part = l.part[:0]
		}
	}
	return len(p), nil
}

func (l *kernelLog) line(s string) {
	if len(l.lines) == l.most {
		n := copy(l.lines, l.lines[l.most/2:])
		l.lines, l.dropped = l.lines[:n], l.dropped+l.most-n
	}
	l.lines = append(l.lines, s)
	expected := false
	for _, e := range l.expected {
		expected = e.see(s) || expected
	}
	if panicLine.MatchString(s) && closeOnce(l.panicked) {
		l.panicAt = l.dropped + len(l.lines) - 1
	}
	if stuckLine.MatchString(s) {
		closeOnce(l.stuck)
	}
	if !expected && faults.MatchString(s) && len(l.faults) < l.most {
		l.faults = append(l.faults, s)
	}
}

// closeOnce closes c, and reports whether it was open.
func closeOnce(c chan struct{}) bool {
	select {
	case <-c:
		return false
	default:
		close(c)
		return true
	}
}

// count returns the number of lines so far.
func (l *kernelLog) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dropped + len(l.lines)
}

// tail returns the end of the log for an error or, after a panic, the lines around that of the panic.
func (l *kernelLog) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.lines
	if len(l.part) > 0 {
		all = append(all[:len(all):len(all)], string(l.part))
	}
	from := len(all) - tailSize
	select {
	case <-l.panicked:
		from = min(from, l.panicAt-l.dropped-leadIn)
	default:
	}
	from = max(0, from)
	t := all[from:min(from+tailSize, len(all))]
	if len(t) == 0 {
		return "the console said nothing"
	}
	return "the console said:\n\t" + strings.Join(t, "\n\t")
}

func (l *kernelLog) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.lines...)
}

// found returns the unexpected faults.
func (l *kernelLog) found() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.faults...)
}

// faultLines is the maximum number of lines of a kernel's report, with locks and stacks.
const faultLines = 150

// aroundFaults returns up to faultLines lines of the log from the first fault on, or "" if there is no fault.
func (l *kernelLog) aroundFaults() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.faults) == 0 {
		return ""
	}
	from := max(0, slices.Index(l.lines, l.faults[0]))
	return strings.Join(l.lines[from:min(from+faultLines, len(l.lines))], "\n")
}

// An Expectation is a pattern of kernel log lines that a test provokes and that are therefore no faults.
type Expectation struct {
	pattern *regexp.Regexp
	once    sync.Once
	seen    chan struct{}
	first   string
}

func (l *kernelLog) expect(pattern string) (*Expectation, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("vjetson: expected kernel log line: %w", err)
	}
	e := &Expectation{pattern: re, seen: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expected = append(l.expected, e)
	return e, nil
}

func (e *Expectation) see(line string) bool {
	if !e.pattern.MatchString(line) {
		return false
	}
	e.once.Do(func() {
		e.first = line
		close(e.seen)
	})
	return true
}

// Wait waits for the first line that matches, and returns it.
func (e *Expectation) Wait(ctx context.Context) (string, error) {
	select {
	case <-e.seen:
		return e.first, nil
	case <-ctx.Done():
		return "", fmt.Errorf("vjetson: no kernel log line matches %q: %w", e.pattern, context.Cause(ctx))
	}
}
