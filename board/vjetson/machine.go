// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/tegracast/tegracast/board/vjetson/channel"
)

// Machine is a running machine. Its methods may be called concurrently.
type Machine struct {
	cfg  Config
	log  *kernelLog
	qemu *exec.Cmd
	said *tailBuffer // QEMU's own messages
	qmp  *qmp
	port net.Conn
	jobs *jobs
	net  *network // nil: no network

	cache *diskCache // nil without Config.DiskCache

	slots []device // devices in the hot-plug slots

	ended   chan struct{} // closed when QEMU and the disk cache have ended
	exitErr error         // of QEMU; read only after ended is closed

	closing   sync.Once
	closeErr  error
	cutOff    sync.Once
	wanted    chan struct{} // closed when the caller expects the machine to end
	agentDone chan struct{} // closed when the agent's port has been read to its end
}

// Start boots a machine and returns it when its agent answers, and systemd and the network are up if it has them.
// Errors of the machine wrap ErrMissing, ErrUnreachable, ErrBoot, ErrHung, ErrPanic or ErrEnded. After any error, and
// when ctx ends first, nothing is left behind. The machine does not end with ctx; use Close.
func Start(ctx context.Context, cfg Config) (*Machine, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	if err := cfg.prepare(ctx); err != nil {
		return nil, err
	}
	m, err := start(ctx, cfg)
	switch { // nothing of ours has run yet
	case errors.Is(err, ErrPanic) && cfg.arch.name == "amd64" && !cfg.Full:
		cfg.Log.Warn("the emulated machine is started again: QEMU sometimes executes instructions that the kernel is changing", "error", err)
	case errors.Is(err, errStuck) && ctx.Err() == nil:
		cfg.Log.Warn("the emulated machine is started again: in QEMU a kernel sometimes stops while it boots", "error", err)
	default:
		return m, err
	}
	return start(ctx, cfg)
}

// start makes a single attempt to boot a machine.
func start(ctx context.Context, cfg Config) (*Machine, error) {
	kernel, err := os.Open(cfg.Kernel.Image())
	if err != nil {
		return nil, fmt.Errorf("%w: kernel: %w (remove its folder from the cache to fetch it again)", ErrMissing, err)
	}
	defer kernel.Close()
	root, err := smallRoot(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	m := &Machine{
		cfg: cfg, log: newKernelLog(cfg.Console), said: &tailBuffer{}, ended: make(chan struct{}),
		wanted: make(chan struct{}), agentDone: make(chan struct{}),
	}
	if err := m.launch(ctx, kernel, root); err != nil {
		return nil, err
	}
	if err := m.boot(ctx); err != nil {
		_ = m.end()
		return nil, err
	}
	return m, nil
}

// prepare checks that the host has the tools, and finds or fetches QEMU and the kernel.
func (c *Config) prepare(ctx context.Context) error {
	tools := map[string]string{"go": "golang-go"}
	if len(c.Functions) == 0 {
		tools[c.arch.qemu] = c.arch.qemuPackage
	}
	if err := needTools(tools); err != nil {
		return err
	}
	if c.Kernel.Dir == "" {
		k, err := Fetch(ctx, c.arch.name, c.Log)
		if err != nil {
			return err
		}
		c.Kernel = k
	}
	if len(c.Functions) > 0 {
		return c.prepareFunctions(ctx)
	}
	c.qemu = []string{c.arch.qemu}
	return nil
}

// boot waits until the agent answers, and until systemd and the network, if the machine has them, are up.
func (m *Machine) boot(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, m.cfg.BootTimeout, fmt.Errorf("not within %v", m.cfg.BootTimeout))
	defer cancel()
	if err := m.qmp.execute(ctx, "qmp_capabilities", nil); err != nil {
		return m.bootError(err)
	}
	if err := m.agentUp(ctx); err != nil {
		return err
	}
	if m.cfg.Full {
		return m.systemUp(ctx)
	}
	if m.net != nil {
		return m.networkUp(ctx)
	}
	return nil
}

// systemUp waits until systemd has started its units and configured the network, if the machine has one. A failed unit
// is no error of the machine.
func (m *Machine) systemUp(ctx context.Context) error {
	if _, err := m.Run(ctx, "systemctl", "is-system-running", "--wait"); err != nil {
		return err
	}
	if m.net == nil {
		return nil
	}
	_, err := m.Shell(ctx, "/lib/systemd/systemd-networkd-wait-online --interface=eth0 --timeout=60")
	return err
}

func (m *Machine) bootError(why error) error {
	select {
	case <-m.log.panicked:
		return fmt.Errorf("%w during boot: %s", ErrPanic, m.log.tail())
	default:
	}
	if why == nil {
		why = errors.New("QEMU has ended")
	}
	kind := ErrBoot
	if m.log.count() == 0 {
		kind = errStuck
	}
	return fmt.Errorf("%w: %w%s; %s", kind, why, m.said.quote(), m.log.tail())
}

// agentUp waits until the agent answers. The error wraps errStuck as soon as the kernel reports that a task or a CPU does
// not go on, which is a fault in any case, and when a kernel with the small root has printed nothing for a third of
// BootTimeout.
func (m *Machine) agentUp(ctx context.Context) error {
	patience := max(m.cfg.BootTimeout/3, leastPatience)
	if m.cfg.Full { // systemd prints little on the console
		patience = m.cfg.BootTimeout
	}
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for lines, since := 0, time.Now(); ; {
		select {
		case <-m.jobs.hello:
			return nil
		case <-m.log.panicked:
			_ = m.awaitEnd(ctx)
			return fmt.Errorf("%w during boot: %s", ErrPanic, m.log.tail())
		case <-m.log.stuck:
			return fmt.Errorf("%w: %s", errStuck, m.log.tail())
		case <-m.ended:
			return m.bootError(m.exitErr)
		case <-ctx.Done():
			return m.bootError(context.Cause(ctx))
		case <-look.C:
			if n := m.log.count(); n != lines {
				lines, since = n, time.Now()
			}
			if time.Since(since) > patience {
				return fmt.Errorf("%w: no line from the kernel for %v%s; %s", errStuck, patience, m.said.quote(), m.log.tail())
			}
		}
	}
}

// leastPatience is the shortest silence of a kernel that means that it is stuck.
const leastPatience = 30 * time.Second

// awaitEnd waits until QEMU and the disk cache have ended. The error wraps ErrHung if ctx ends first.
func (m *Machine) awaitEnd(ctx context.Context) error {
	select {
	case <-m.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: still running: %w; %s", ErrHung, context.Cause(ctx), m.log.tail())
	}
}

// Kernel returns the machine's kernel.
func (m *Machine) Kernel() Kernel { return m.cfg.Kernel }

// KernelLog returns the lines of the console so far, beginning with the kernel's first. If there are more than 20,000,
// it returns at least the last 10,000.
func (m *Machine) KernelLog() []string { return m.log.all() }

// Faults returns the kernel's unexpected faults.
func (m *Machine) Faults() []string { return m.log.found() }

// Expect declares that kernel log lines matching pattern are no faults from now on.
func (m *Machine) Expect(pattern string) (*Expectation, error) { return m.log.expect(pattern) }

// PowerOff makes the machine power itself off and waits for its end.
func (m *Machine) PowerOff(ctx context.Context) error {
	m.want()
	ctx, cancel := bound(ctx)
	defer cancel()
	argv := []string{"poweroff", "-f"}
	if m.cfg.Full {
		argv = []string{"systemctl", "poweroff"}
	}
	_, err := m.Run(ctx, argv...)
	if err != nil && !errors.Is(err, ErrEnded) {
		return err
	}
	return m.awaitEnd(ctx)
}

// Wait waits until the machine has ended by an action inside it, which Close then does not report.
func (m *Machine) Wait(ctx context.Context) error {
	m.want()
	return m.awaitEnd(ctx)
}

// PowerCut cuts the power: data that have not left the guest are lost, and with Config.DiskCache also a random part of
// the data that it has not flushed. It kills QEMU, which would flush the disk if asked to end.
func (m *Machine) PowerCut(ctx context.Context) error {
	m.want()
	ctx, cancel := bound(ctx)
	defer cancel()
	_ = m.qemu.Process.Kill() // it may have ended
	return m.awaitEnd(ctx)
}

// CacheLost returns how many sectors of Config.DiskCache were lost in the power cut, and how many other unflushed sectors
// were kept. It waits for the end of the machine, which must have such a cache.
func (m *Machine) CacheLost() (lost, kept int) {
	<-m.ended
	return m.cache.lost, m.cache.kept
}

// PressPowerButton pulses the power button's line for 100 ms; on arm64 it is line 3 of the PL061. A machine whose system
// listens to it powers off.
func (m *Machine) PressPowerButton(ctx context.Context) error {
	return m.qmp.execute(ctx, "system_powerdown", nil)
}

// Freeze stops the machine's processors until Thaw.
func (m *Machine) Freeze(ctx context.Context) error { return m.qmp.execute(ctx, "stop", nil) }

// Thaw undoes Freeze.
func (m *Machine) Thaw(ctx context.Context) error { return m.qmp.execute(ctx, "cont", nil) }

// want records that the end of the machine is expected.
func (m *Machine) want() { m.cutOff.Do(func() { close(m.wanted) }) }

// Close ends the machine in any state and releases everything. The error wraps ErrPanic or ErrEnded if the machine had
// ended unexpectedly. Without such a panic it also wraps ErrFault, with the kernel's unexpected reports, if there are
// any. Further calls return the same error.
func (m *Machine) Close() error {
	m.closing.Do(func() { m.closeErr = m.close() })
	return m.closeErr
}

func (m *Machine) close() error {
	var early error
	select {
	case <-m.ended:
		select {
		case <-m.wanted:
		default:
			early = m.endError()
		}
	default:
	}
	err := m.end()
	if f := m.Faults(); len(f) > 0 && !errors.Is(early, ErrPanic) {
		early = errors.Join(early, fmt.Errorf("%w:\n\t%s", ErrFault, strings.Join(f, "\n\t")))
	}
	return errors.Join(early, err)
}

func (m *Machine) endError() error {
	select {
	case <-m.log.panicked:
		return fmt.Errorf("%w: %s", ErrPanic, m.log.tail())
	default:
	}
	why := ""
	if m.exitErr != nil {
		why = ": " + m.exitErr.Error()
	}
	return fmt.Errorf("%w%s%s; %s", ErrEnded, why, m.said.quote(), m.log.tail())
}

// end kills QEMU, waits until it has ended, and releases everything.
func (m *Machine) end() error {
	m.want()
	_ = m.qemu.Process.Kill() // it may have ended
	<-m.ended
	m.port.Close()
	m.qmp.conn.Close()
	<-m.agentDone
	<-m.qmp.ended
	if m.net != nil {
		m.net.close()
	}
	return nil
}

// bound adds the default deadline to a context without one.
func bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, defaultRunTimeout, fmt.Errorf("not within %v", defaultRunTimeout))
}

func (m *Machine) serveAgent() {
	defer close(m.agentDone)
	m.jobs.serve()
}

// tailBuffer keeps the last 2 KiB.
type tailBuffer struct {
	mu sync.Mutex
	b  []byte
}

func (t *tailBuffer) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	t.b = t.b[max(0, len(t.b)-2<<10):]
	return len(p), nil
}

func (t *tailBuffer) quote() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.b) == 0 {
		return ""
	}
	return "; it said: " + strings.TrimSpace(string(t.b))
}

// waitQEMU waits until QEMU and the disk cache have ended, and then closes m.ended. It runs in a separate goroutine.
func (m *Machine) waitQEMU() {
	m.exitErr = m.qemu.Wait()
	if m.cache != nil {
		<-m.cache.ended
	}
	close(m.ended)
}

const waitDelay = 5 * time.Second

func newJobs(conn net.Conn) *jobs {
	return &jobs{conn: channel.New(conn), hello: make(chan struct{}), gone: make(chan struct{}), all: make(map[uint32]*job)}
}
