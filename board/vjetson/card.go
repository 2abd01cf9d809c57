package vjetson

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"tegracast/board/vjetson/ivshmem"
)

// Card is the FPGA model as a process outside the machine.
type Card struct {
	BlockRAM int // bytes, default 1 MiB

	// CameraWidth and CameraHeight are the samples and lines of a camera on C2H channel 1, which replays the upper left
	// corner of the real test chart. 0: no camera.
	CameraWidth, CameraHeight int
}

func (c *Card) check() error {
	if c != nil && (c.BlockRAM < 0 || c.BlockRAM%16 != 0) {
		return fmt.Errorf("vjetson: block RAM of %d bytes, want a multiple of 16", c.BlockRAM)
	}
	if c != nil && (c.CameraWidth == 0) != (c.CameraHeight == 0) {
		return fmt.Errorf("vjetson: a camera of %dx%d: give both width and height", c.CameraWidth, c.CameraHeight)
	}
	return nil
}

// cardSlot is the machine's end of the card: what both sides share stays, the process comes and goes.
type cardSlot struct {
	cfg    Card
	base   uint64 // physical address of the machine's RAM
	ram    *os.File
	shared *ivshmem.Shared
	guest  *net.UnixConn // to QEMU's device
	binary *os.File

	mu      sync.Mutex
	process *exec.Cmd     // nil when there is none
	ended   chan struct{} // closed when process has ended
	socket  net.Conn
	said    *tailBuffer
}

func newCardSlot(ctx context.Context, cfg Config) (_ *cardSlot, err error) {
	s := &cardSlot{cfg: *cfg.Card, base: cfg.arch.ramBase}
	if s.cfg.BlockRAM == 0 {
		s.cfg.BlockRAM = 1 << 20
	}
	defer func() {
		if err != nil {
			_ = s.close()
		}
	}()
	fd, err := unix.MemfdCreate("vjetson-ram", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("vjetson: RAM: %w", err)
	}
	s.ram = os.NewFile(uintptr(fd), "ram")
	if err := s.ram.Truncate(int64(cfg.Memory) << 20); err != nil {
		return nil, fmt.Errorf("vjetson: RAM: %w", err)
	}
	if s.shared, err = ivshmem.New(); err != nil {
		return nil, err
	}
	s.binary, err = buildCard(ctx)
	return s, err
}

// buildCard compiles the card's process for this host and returns it as a file that has no name any more.
func buildCard(ctx context.Context) (*os.File, error) {
	dir, err := os.MkdirTemp("", "vjetson-")
	if err != nil {
		return nil, fmt.Errorf("vjetson: %w", err)
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "cardprocess")
	c := exec.CommandContext(ctx, "go", "build", "-o", out, "tegracast/board/vjetson/cardprocess")
	if b, err := c.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("vjetson: building the card's process: %w: %s", err, b)
	}
	f, err := os.Open(out)
	if err != nil {
		return nil, fmt.Errorf("vjetson: %w", err)
	}
	return f, nil
}

// attach gives QEMU the shared RAM and the device.
func (s *cardSlot) attach(l *launcher, memory int) error {
	l.add("-object", fmt.Sprintf("memory-backend-file,id=ram,size=%dM,mem-path=%s,share=on", memory, l.path(s.ram)),
		"-machine", "memory-backend=ram")
	conn, err := l.socket("card")
	if err != nil {
		return err
	}
	s.guest = conn
	l.add("-device", "pcie-root-port,id=slot0,chassis=1,slot=0",
		"-device", fmt.Sprintf("ivshmem-doorbell,id=card,bus=slot0,chardev=card,vectors=%d", ivshmem.Vectors))
	return s.shared.Introduce(s.guest, ivshmem.Guest)
}

// StartCard starts the card's process, which must not be running, and returns when it is ready.
func (m *Machine) StartCard(ctx context.Context) error {
	ctx, cancel := bound(ctx)
	defer cancel()
	if m.card == nil {
		return errors.New("vjetson: the machine has no card: set Config.Card")
	}
	return m.card.start(ctx)
}

func (s *cardSlot) start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		return errors.New("vjetson: the card's process runs already")
	}
	ours, theirs, err := socketPair("card")
	if err != nil {
		return err
	}
	defer theirs.Close()
	socket, err := unixConn(ours)
	if err != nil {
		return err
	}
	c := exec.Command("/proc/self/fd/5", "--ram-base", strconv.FormatUint(s.base, 10), "--block-ram", strconv.Itoa(s.cfg.BlockRAM),
		"--camera-width", strconv.Itoa(s.cfg.CameraWidth), "--camera-height", strconv.Itoa(s.cfg.CameraHeight))
	c.ExtraFiles = []*os.File{theirs, s.ram, s.binary} // 3, 4, 5
	s.said = &tailBuffer{}
	c.Stderr, c.WaitDelay = s.said, waitDelay
	out, err := c.StdoutPipe()
	if err == nil {
		err = startChild(c)
	}
	if err != nil {
		socket.Close()
		return fmt.Errorf("vjetson: card: %w", err)
	}
	if err := s.shared.Introduce(socket, ivshmem.CardID); err != nil {
		_, _ = c.Process.Kill(), c.Wait()
		socket.Close()
		return err
	}
	s.process, s.socket, s.ended = c, socket, make(chan struct{})
	ready := make(chan error, 1)
	go func(ended chan struct{}) {
		_, err := bufio.NewReader(out).ReadString('\n')
		ready <- err
		_ = c.Wait() // ProcessState has it
		close(ended)
	}(s.ended)
	select {
	case err = <-ready:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		s.stop()
		return fmt.Errorf("vjetson: the card's process is not ready: %w%s", err, s.said.quote())
	}
	return nil
}

// KillCard kills the card's process, as a card that falls off the bus.
func (m *Machine) KillCard() error {
	if m.card == nil {
		return errors.New("vjetson: the machine has no card: set Config.Card")
	}
	m.card.mu.Lock()
	defer m.card.mu.Unlock()
	if m.card.process == nil {
		return errors.New("vjetson: the card's process does not run")
	}
	m.card.stop()
	return nil
}

// stop kills the process and waits for it; mu is held.
func (s *cardSlot) stop() {
	_ = s.process.Process.Kill() // it may have gone
	<-s.ended
	s.socket.Close()
	s.process = nil
}

// close ends the process and gives back what is shared.
func (s *cardSlot) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if s.process != nil {
		select {
		case <-s.ended:
			err = fmt.Errorf("vjetson: the card's process had ended by itself: %v%s", s.process.ProcessState, s.said.quote())
		default:
		}
		s.stop()
	}
	if s.guest != nil {
		s.guest.Close()
	}
	if s.shared != nil {
		s.shared.Close()
	}
	for _, f := range []*os.File{s.ram, s.binary} {
		if f != nil {
			f.Close()
		}
	}
	return err
}
