// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path"
	"strconv"
	"sync"
	"time"

	"github.com/tegracast/tegracast/capture"
	"github.com/tegracast/tegracast/cmd/tegracast/appliance"
	"github.com/tegracast/tegracast/cmd/tegracast/config"
	"github.com/tegracast/tegracast/cmd/tegracast/device"
	"github.com/tegracast/tegracast/cmd/tegracast/loopback"
	"github.com/tegracast/tegracast/cmd/tegracast/terminal"
	"github.com/tegracast/tegracast/cmd/tegracast/verdict"
	"github.com/tegracast/tegracast/cudahost"
	"github.com/tegracast/tegracast/pipeline/rtp"
	"github.com/tegracast/tegracast/pipeline/rtp/receive"
	"github.com/tegracast/tegracast/tegra"
	"github.com/tegracast/tegracast/tegra/uapi"
)

// moduleText prints the module's information about each of its devices.
func (r *reporter) moduleText(_ context.Context, w io.Writer) error {
	names, _ := fs.Glob(r.p.root, "dev/tegra_p2p*")
	if names == nil {
		return errors.New("there is no device file /dev/tegra_p2p0")
	}
	var errs []error
	for _, name := range names {
		info, err := r.p.info("/" + name)
		if err != nil {
			errs = append(errs, fmt.Errorf("/%s: %w", name, err))
			continue
		}
		fmt.Fprintf(w, "/%s: %+v\n", name, info)
		fmt.Fprintf(w, "pins through %s; nv-p2p compiled in %v, provided %v, the desktop's %v\n", pinsThrough(info), info.Flags&uapi.InfoNVP2PBuilt != 0,
			info.Flags&uapi.InfoNVP2PPresent != 0, info.Flags&uapi.InfoNVP2PForeign != 0)
		errs = append(errs, regions(w, "/"+name))
		page, err := fs.ReadFile(r.p.root, "sys/kernel/debug/tegra_p2p/"+path.Base(name))
		if err != nil {
			errs = append(errs, fmt.Errorf("debugfs: %w", err))
		}
		fmt.Fprintf(w, "%s\n", page)
	}
	return errors.Join(errs...)
}

func pinsThrough(info uapi.Info) string {
	if info.Flags&uapi.InfoNVP2P != 0 {
		return "nv-p2p"
	}
	return "pin_user_pages"
}

// regions prints the six BARs of a device.
func regions(w io.Writer, device string) error {
	f, err := os.Open(device)
	if err != nil {
		return err
	}
	defer f.Close()
	for i := range 6 {
		region, err := uapi.GetRegion(int(f.Fd()), i)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "BAR %d: %+v\n", i, region)
	}
	return nil
}

// pinSizes are the size of a page in bytes, and about those of a camera's descriptors and of a 4K frame.
var pinSizes = []int{tegra.PageSize, 1 << 20, 32 << 20}

// pins pins memory for the FPGA and measures the time. The module uses one way of pinning until it is reloaded.
func (r *reporter) pins(ctx context.Context, w io.Writer) error {
	var errs []error
	for _, backend := range r.backends() {
		errs = append(errs, r.pinsOf(ctx, w, backend))
	}
	return errors.Join(errs...)
}

// backends returns the kinds of memory that this machine may have.
func (r *reporter) backends() []string {
	if r.p.library(cudaLibrary) == "" {
		return []string{"host"}
	}
	return []string{"host", "cuda"}
}

// quietEnv returns an environment for the parts of a report. It writes their output and log to w.
func quietEnv(w io.Writer) terminal.Env {
	return terminal.Env{Out: w, Err: io.Discard, Log: slog.New(slog.NewTextHandler(w, nil))}
}

func (r *reporter) pinsOf(ctx context.Context, w io.Writer, backend string) (err error) {
	board, err := device.OpenBoard(cudahost.Config{Backend: backend, Logger: quietEnv(w).Log}, tegra.DefaultDevice)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, board.Close()) }()
	if err := loopback.Settle(ctx, board); err != nil {
		return err
	}
	other := "backend=nvp2p"
	if pinsThrough(board.Function.Info()) == "nv-p2p" {
		other = "backend=gup"
	}
	fmt.Fprintf(w, "%s memory, pinned through %s; for the other way: modprobe -r tegra_p2p; modprobe tegra_p2p %s; then a second report\n", backend, pinsThrough(board.Function.Info()), other)
	for _, size := range pinSizes {
		for _, direction := range []tegra.Direction{tegra.ToDevice, tegra.FromDevice} {
			fmt.Fprintln(w, pinOnce(board.Hardware, size, direction))
		}
	}
	return nil
}

// pinOnce pins memory once and describes the result.
func pinOnce(hw capture.Hardware, size int, direction tegra.Direction) string {
	what := fmt.Sprintf("%s %v", bytesText(uint64(size)), direction)
	began := time.Now()
	s, err := capture.NewSurface(hw.Memory, hw.Pinner, size, cudahost.Mapped, direction)
	if err != nil {
		return fmt.Sprintf("%s: failed: %v", what, err)
	}
	pinned := time.Since(began)
	began = time.Now()
	err = s.Close()
	return fmt.Sprintf("%s: %d segments, pinned in %v, unpinned in %v, error %v", what, len(s.Memory.Segments), pinned, time.Since(began), err)
}

// loopback returns a function that performs the validation run with a device and a kind of memory, and prints its
// result.
func (r *reporter) loopback(name, backend string) func(context.Context, io.Writer) error {
	return func(ctx context.Context, w io.Writer) error {
		if backend == "cuda" && len(r.backends()) < 2 {
			return errors.New("there is no CUDA")
		}
		o := loopback.DefaultOptions()
		o.Device, o.Memory, o.Count, o.JSON = name, backend, 20, true
		result, err := loopback.Run(ctx, quietEnv(w), o)
		if err != nil {
			return err
		}
		return result.Print(w, o)
	}
}

// streamModel streams the default configuration.
func (r *reporter) streamModel(ctx context.Context, w io.Writer) error {
	c, err := config.Load("")
	if err != nil {
		return err
	}
	return streamToItself(ctx, w, c, r.stream)
}

// streamCamera streams the service's configuration. It returns an error if the configuration has no camera of a real
// FPGA.
func (r *reporter) streamCamera(ctx context.Context, w io.Writer) error {
	c, err := config.Load(r.config)
	if err != nil {
		return err
	}
	for _, s := range c.Sources {
		if s.Card.Name != "" && !s.Card.Own {
			return streamToItself(ctx, w, c, r.stream)
		}
	}
	return fmt.Errorf("%s has no source with fpga: only the model could be streamed, see stream-model.txt", r.config)
}

// streamToItself runs a configuration for a while, with every stream sent to this machine, and receives the streams.
func streamToItself(ctx context.Context, w io.Writer, c *config.Appliance, length time.Duration) (err error) {
	for i := range c.Outputs {
		if k, ok := c.Outputs[i].Kind.(*config.RTP); ok {
			port, err := evenPort()
			if err != nil {
				return err
			}
			k.Destinations, k.Interface, k.TTL, k.Checksum = []string{net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}, "", 0, true
		}
	}
	e := quietEnv(&lockedWriter{w: w})
	listening, deafen := context.WithCancel(context.Background()) // longer than the sender
	defer deafen()
	r := receivers{ctx: listening, e: e}
	sending, stop := context.WithCancel(ctx)
	defer stop()
	begin := func(streams []appliance.Stream) error {
		time.AfterFunc(length, stop)
		return r.open(streams)
	}
	err = appliance.Trial(sending, appliance.Env{Out: e.Out, Log: e.Log}, c, begin, func() {
		deafen()
		r.running.Wait()
	})
	for _, report := range r.reports {
		err = errors.Join(err, report())
	}
	return err
}

// receivers receive streams until ctx ends. Then each report describes what was received.
type receivers struct {
	ctx     context.Context
	e       terminal.Env
	running sync.WaitGroup
	reports []func() error
}

func (r *receivers) open(streams []appliance.Stream) error {
	for _, s := range streams {
		text, err := s.SDP()
		if err != nil {
			return err
		}
		media, err := rtp.ParseSDP(text)
		if err != nil {
			return err
		}
		if !s.Pictures() {
			continue
		}
		receiver, err := receive.New(receive.Config{Media: media[0], Logger: r.e.Log})
		if err != nil {
			return err
		}
		var failed error
		r.running.Go(func() { failed = receiver.Run(r.ctx) })
		r.reports = append(r.reports, func() error {
			return errors.Join(failed, verdict.Print(r.e.Out, "", media[0], receiver.Stats(), "", false))
		})
	}
	return nil
}

// evenPort returns an even UDP port of this machine that is free together with the next one (RFC 3550 §11).
func evenPort() (int, error) {
	for range 100 {
		port, free := 10000+2*rand.IntN(10000), true
		for _, p := range []int{port, port + 1} {
			c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: p})
			if err != nil {
				free = false
				break
			}
			_ = c.Close()
		}
		if free {
			return port, nil
		}
	}
	return 0, errors.New("there are no two free UDP ports")
}

// lockedWriter serialises writes by the log and by other writers.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}
