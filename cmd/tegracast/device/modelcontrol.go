// SPDX-License-Identifier: Apache-2.0

//go:build modelcontrol

package device

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/fpga/model"
	"github.com/tegracast/tegracast/tegra/tegrasim"
	"github.com/tegracast/tegracast/tegra/uapi"
)

// ControlFolder is the environment variable for the folder of the models' control sockets, in programs that are built for
// tests with the tag modelcontrol. The model with seed N listens at model-N. A client sends a line and gets "ok", or the
// error:
//
//	inject F5      the fault happens once, at the next opportunity
//	revoke N       the pin number N, modulo the number of pins, in the order of addresses, is revoked
//	refuse RATE N  calls that pin and allocate fail at this rate, by the seed N; rate 0 ends that
//	withdraw       requested faults that have not happened yet do not happen (model.Device.Withdraw)
//	reset          the device is reset
//	step 2s        the FPGA's clock steps by this time
//	wall 2s        the process's wall clock is ahead of the machine's by this time
//	collect        the process collects garbage, and returns free memory to the system
const ControlFolder = "TEGRACAST_MODEL_CONTROL"

// control lets tests control the model from another process until stop is called, if the environment variable
// ControlFolder names a folder for its socket. It uses datagrams, which need no further file descriptors. A socket that
// was left behind is replaced.
func control(d *Model, seed uint64) (stop func(), err error) {
	folder := os.Getenv(ControlFolder)
	if folder == "" {
		return func() {}, nil
	}
	path := filepath.Join(folder, fmt.Sprintf("model-%d", seed))
	_ = os.Remove(path)
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return nil, err
	}
	var open sync.WaitGroup
	open.Go(func() {
		for buffer := make([]byte, 1<<10); ; {
			n, from, err := c.ReadFromUnix(buffer)
			if err != nil {
				return
			}
			said := "ok"
			if err := d.command(strings.Fields(string(buffer[:n]))); err != nil {
				said = err.Error()
			}
			_, _ = c.WriteToUnix([]byte(said), from)
		}
	})
	return func() { _ = c.Close(); _ = os.Remove(path); open.Wait() }, nil
}

func (d *Model) command(words []string) error {
	word := func(i int) string { return append(words, "", "", "")[i] }
	switch word(0) {
	case "inject":
		id, err := model.ParseFaultID(word(1))
		if err != nil {
			return err
		}
		return d.Device.Inject(id)
	case "revoke":
		n, err := strconv.ParseUint(word(1), 10, 64)
		if err == nil {
			d.Sim.InvalidateAny(n)
		}
		return err
	case "refuse":
		rate, err := strconv.ParseFloat(word(1), 64)
		if err != nil {
			return err
		}
		seed, err := strconv.ParseUint(word(2), 10, 64)
		if err != nil {
			return err
		}
		var refuse func(uint) unix.Errno
		if rate > 0 {
			refusals := tegrasim.Refusals(seed, rate)
			refuse = func(call uint) unix.Errno {
				if call != uapi.CallPin && call != uapi.CallAlloc {
					return 0
				}
				return refusals(call)
			}
		}
		d.Sim.Refuse(refuse)
	case "withdraw":
		d.Device.Withdraw()
	case "reset":
		d.Device.Reset()
	case "step":
		step, err := time.ParseDuration(word(1))
		if err == nil {
			d.Device.StepClock(step)
		}
		return err
	case "wall":
		ahead, err := time.ParseDuration(word(1))
		if err != nil {
			return err
		}
		return stepWall(ahead)
	case "collect":
		debug.FreeOSMemory()
	default:
		return fmt.Errorf("unknown command %q", word(0))
	}
	return nil
}
