// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/tegracast/tegracast/board/vjetson"
	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/fpga/vfiouser"
	"github.com/tegracast/tegracast/fpga/vfiouser/endpoint"
)

const usage = `Boots a virtual Jetson: Debian with systemd on %s, tegracast inside, the FPGA model on PCI Express
as /dev/tegra_p2p0, and a network between it (%s) and a namespace of this host (%s).

  make vjetson                              log in on the console; ctrl-] takes the power away, "poweroff" shuts down
  make vjetson CMD='uname -a'               run one command with sh, exit with its status
  make vjetson ARGS='--disk my.img'         keep what is written in a disk image, which is made when it is not there

The options below go into ARGS.

`

// step prints which step begins, because each step takes a while. It prints nothing if standard error is no terminal.
func step(format string, a ...any) {
	if term.IsTerminal(int(os.Stderr.Fd())) {
		fmt.Fprintf(os.Stderr, "vjetson: "+format+"\n", a...)
	}
}

type options struct {
	arch, device, disk, command string
	small, verbose              bool
}

func main() {
	var o options
	f := pflag.NewFlagSet("vjetson", pflag.ContinueOnError)
	f.StringVar(&o.arch, "arch", "arm64", "arm64 or amd64")
	f.StringVar(&o.device, "device", "card", "card (the FPGA model), edu (QEMU's) or none; both behind an IOMMU")
	f.StringVar(&o.disk, "disk", "", "image that keeps what is written (default: nothing is kept)")
	f.StringVarP(&o.command, "command", "c", "", "run this and power off")
	f.BoolVar(&o.small, "small", false, "the small root of busybox, in two seconds; with --command only")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "show the console while a command runs")
	f.Usage = func() {
		fmt.Fprintf(os.Stderr, usage, "arm64 or amd64", vjetson.GuestAddress, vjetson.HostAddress)
		f.PrintDefaults()
	}
	switch err := f.Parse(os.Args[1:]); {
	case errors.Is(err, pflag.ErrHelp):
		return
	case err != nil || f.NArg() > 0 || o.small && o.command == "":
		if err == nil {
			err = errors.New("arguments are not understood, or --small without --command")
		}
		fmt.Fprintln(os.Stderr, "vjetson:", err, "(see --help)")
		os.Exit(2)
	}
	status, err := run(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "vjetson:", err)
		os.Exit(1)
	}
	os.Exit(status)
}

func run(o options) (status int, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	defer func() {
		if err != nil && ctx.Err() != nil { // the interrupt is the cause of the error
			err = errors.New("interrupted")
		}
	}()
	step("building tegracast and Debian's root for %s, with what is not in the cache", o.arch)
	cfg, clean, err := configure(ctx, o)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, clean()) }()
	if o.command == "" {
		return 0, console(ctx, cfg, o)
	}
	if o.verbose {
		cfg.Console = os.Stderr
	}
	step("booting")
	m, err := vjetson.Start(ctx, cfg)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if o.device != "none" {
		step("building and loading the kernel module")
	}
	if err := bind(ctx, m, o); err != nil {
		return 0, err
	}
	long, cancel := context.WithTimeout(ctx, 24*time.Hour)
	defer cancel()
	if status, err = m.RunTo(long, os.Stdout, os.Stderr, "sh", "-c", o.command); err != nil {
		return 0, err
	}
	return status, m.PowerOff(ctx)
}

// bind builds and loads the kernel module, and binds the device to it: /dev/tegra_p2p0. Without a device it does
// nothing.
func bind(ctx context.Context, m *vjetson.Machine, o options) error {
	if o.device == "none" {
		return nil
	}
	gomod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("go env GOMOD: %w", err)
	}
	dir, err := os.MkdirTemp("", "vjetson-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	source, built := filepath.Join(filepath.Dir(string(gomod)), "tegra/kmod"), filepath.Join(dir, "kmod")
	if err := vjetson.BuildModule(ctx, m.Kernel(), source, built); err != nil {
		return err
	}
	if err := m.LoadModule(ctx, filepath.Join(built, "tegra_p2p.ko")); err != nil {
		return err
	}
	return m.Bind(ctx, "tegra_p2p", "/dev/tegra_p2p0")
}

// configure builds tegracast for the machine and inserts the card, if o selects it, into its slot. clean removes both;
// it is nil if err is not.
func configure(ctx context.Context, o options) (cfg vjetson.Config, clean func() error, err error) {
	dir, err := os.MkdirTemp("", "vjetson-")
	if err != nil {
		return cfg, nil, err
	}
	remove := func() error { return os.RemoveAll(dir) }
	defer func() {
		if err != nil {
			err = errors.Join(err, remove())
		}
	}()
	binary := filepath.Join(dir, "tegracast")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildmode=pie", "-o", binary, "github.com/tegracast/tegracast/cmd/tegracast")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+o.arch)
	if out, err := build.CombinedOutput(); err != nil {
		return cfg, nil, fmt.Errorf("building tegracast for %s: %w: %s", o.arch, err, out)
	}
	cfg = vjetson.Config{
		Arch: o.arch, Full: !o.small, Disk: o.disk, Network: true, Memory: 1024,
		Files: map[string]string{"/usr/bin/tegracast": binary}, Log: slog.Default(),
	}
	switch o.device {
	case "card":
		card, err := newCard()
		if err != nil {
			return cfg, nil, err
		}
		cfg.Functions = []string{card.Path()}
		remove = func() error { return errors.Join(card.Close(), os.RemoveAll(dir)) }
	case "edu":
		cfg.Edu = true
	case "none":
	default:
		return cfg, nil, fmt.Errorf("device %q, want card, edu or none", o.device)
	}
	return cfg, remove, nil
}

// newCard inserts the FPGA model into a slot, with block RAM, and with a camera on C2H channel 1 that replays the lower
// right corner of the real test chart. It uses MSI, because QEMU ends when a function with MSI-X is unplugged.
func newCard() (*endpoint.Endpoint, error) {
	chart, err := model.TestChartSensor().Crop(320, 240)
	if err != nil {
		return nil, err
	}
	sensor, err := model.NewSensor(chart)
	if err != nil {
		return nil, err
	}
	return endpoint.New(endpoint.Config{Card: model.Full(nil, sensor), Function: vfiouser.Function{MSI: endpoint.Vectors}})
}

// console boots the machine with the terminal as its console, binds the device, and waits until the machine has ended
// or ctrl-] is pressed.
func console(ctx context.Context, cfg vjetson.Config, o options) (err error) {
	ctx, cut := context.WithCancelCause(ctx)
	defer cut(nil)
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	t, err := openTerminal()
	if err != nil {
		return err
	}
	defer t.restore()
	cfg.Keyboard, cfg.Console = r, os.Stdout
	go func() { // ends with the process: a terminal's read cannot be cancelled
		defer w.Close()
		if t.copy(w) {
			cut(errCut)
		}
	}()
	m, err := vjetson.Start(ctx, cfg)
	if err != nil {
		return ignoreCut(ctx, err)
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if err := bind(ctx, m, o); err != nil {
		return ignoreCut(ctx, err)
	}
	if rows, columns := t.size(); rows > 0 {
		line := fmt.Sprintf("for t in /dev/ttyAMA0 /dev/ttyS0; do [ -c $t ] && stty -F $t rows %d columns %d; done 2>/dev/null; true", rows, columns)
		if _, err := m.Shell(ctx, line); err != nil {
			return ignoreCut(ctx, err)
		}
	}
	return ignoreCut(ctx, m.Wait(ctx))
}

var errCut = errors.New("ctrl-]")

func ignoreCut(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errCut) {
		return nil
	}
	return err
}
