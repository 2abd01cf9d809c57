// Command cardprocess is the FPGA model as a process outside the virtual Jetson. The harness starts it with two
// inherited descriptors: 3, a socket on which it introduces the card as an ivshmem peer, and 4, the machine's RAM. It
// prints "ready" when the guest can use the card, and ends when the socket does.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"tegracast/board/vjetson/ivshmem"
	"tegracast/fpga"
	"tegracast/fpga/model"
)

const (
	socketFD = 3
	ramFD    = 4
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "cardprocess:", err)
		os.Exit(1)
	}
}

func run() error {
	base := pflag.Uint64("ram-base", 0, "bus address of the first byte of the machine's RAM")
	blockRAM := pflag.Int("block-ram", 1<<20, "bytes of the card's block RAM")
	width := pflag.Int("camera-width", 0, "samples of a line of the camera; 0: no camera")
	height := pflag.Int("camera-height", 0, "lines of the camera")
	pflag.Parse()
	f := os.NewFile(socketFD, "socket")
	conn, err := net.FileConn(f)
	if err != nil {
		return fmt.Errorf("descriptor %d: %w (only the harness can start this program)", socketFD, err)
	}
	f.Close()
	defer conn.Close()
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("descriptor %d is no Unix socket", socketFD)
	}
	shared, err := ivshmem.Join(socket)
	if err != nil {
		return err
	}
	defer shared.Close()
	ram, err := mapRAM(os.NewFile(ramFD, "ram"), *base)
	if err != nil {
		return err
	}
	defer ram.close()
	cfg := model.Loopback(ram)
	cfg.RAM = *blockRAM
	if err := addCamera(&cfg, *width, *height); err != nil {
		return err
	}
	card, err := model.New(cfg)
	if err != nil {
		return err
	}
	return serve(socket, shared, card)
}

// addCamera gives the card a camera on a C2H stream channel of its own. It replays a part of the real test chart.
func addCamera(cfg *model.Config, width, height int) error {
	if width == 0 {
		return nil
	}
	chart, err := model.TestChartSensor().Crop(width, height)
	if err != nil {
		return err
	}
	sensor, err := model.NewSensor(chart)
	if err != nil {
		return err
	}
	cfg.C2H = append(cfg.C2H, model.Stream)
	cfg.Sensors = []*model.Sensor{sensor}
	return nil
}

// serve runs the card until the harness lets go of the socket.
func serve(socket io.Reader, shared *ivshmem.Shared, card *model.Device) error {
	box, err := ivshmem.Open(shared.Memory, card.BARs())
	if err != nil {
		return err
	}
	defer box.Close()
	box.Announce()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, socket)
	}()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return card.Run(ctx) })
	g.Go(func() error { return box.Serve(ctx, shared.Doorbell) })
	for v := range ivshmem.Vectors {
		g.Go(func() error { return forward(ctx, card.Interrupts(), shared, v) })
	}
	fmt.Println("ready")
	return g.Wait()
}

// forward raises what the card raises.
func forward(ctx context.Context, from fpga.Interrupts, to *ivshmem.Shared, vector int) error {
	for {
		if err := from.Wait(ctx, vector); err != nil {
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		}
		if err := to.Raise(vector); err != nil {
			return err
		}
	}
}
