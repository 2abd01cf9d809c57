// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"bytes"
	"context"
	"io/fs"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

const (
	coolingDevice = "sys/class/thermal/cooling_device0/"
	powerMonitor  = "sys/class/hwmon/hwmon1/"
)

func sensors(state, alarm string) fstest.MapFS {
	root := fstest.MapFS{}
	for name, text := range map[string]string{
		"proc/device-tree/model":      "NVIDIA Jetson AGX Orin Developer Kit\x00",
		"proc/device-tree/compatible": "nvidia,p3737-0000+p3701-0000\x00nvidia,p3701-0000\x00nvidia,tegra234\x00",
		"etc/nv_tegra_release":        "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64",
		"var/lib/nvpmodel/status":     "pmode:0000 fmode:quiet", "etc/nvpmodel.conf": "< POWER_MODEL ID=0 NAME=MAXN >",
		"sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq": "2201600",
		coolingDevice + "type": "cpufreq-cpu0", coolingDevice + "cur_state": state,
		powerMonitor + "name": "ina3221", powerMonitor + "in1_label": "VDD_GPU_SOC", powerMonitor + "in1_input": "19984", powerMonitor + "curr1_input": "1250", powerMonitor + "curr1_crit_alarm": alarm,
		"sys/class/thermal/thermal_zone0/type": "cpu-thermal", "sys/class/thermal/thermal_zone0/temp": "49500",
		"sys/class/thermal/thermal_zone1/type": "cpu-thermal", "sys/class/thermal/thermal_zone1/temp": "50000", // a duplicate name
	} {
		root[name] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	return root
}

func TestBoardMetrics(t *testing.T) {
	const want = `
# HELP tegracast_board_clock_hertz Clock frequency of a CPU, or of another device such as the GPU.
# TYPE tegracast_board_clock_hertz gauge
tegracast_board_clock_hertz{clock="cpu0"} 2.2016e+09
# HELP tegracast_board_info Always 1; the labels identify the board.
# TYPE tegracast_board_info gauge
tegracast_board_info{l4t="36.4.3",model="NVIDIA Jetson AGX Orin Developer Kit",module="p3701-0000",power_mode="MAXN"} 1
# HELP tegracast_board_rail_amperes Current of a power rail.
# TYPE tegracast_board_rail_amperes gauge
tegracast_board_rail_amperes{rail="VDD_GPU_SOC"} 1.25
# HELP tegracast_board_rail_volts Voltage of a power rail.
# TYPE tegracast_board_rail_volts gauge
tegracast_board_rail_volts{rail="VDD_GPU_SOC"} 19.984
# HELP tegracast_board_temperature_celsius Temperature of a thermal zone.
# TYPE tegracast_board_temperature_celsius gauge
tegracast_board_temperature_celsius{zone="cpu-thermal"} 49.5
# HELP tegracast_board_throttle_state Throttling of the board: the state of a cooling device, or the number of over-current events.
# TYPE tegracast_board_throttle_state gauge
tegracast_board_throttle_state{name="cpufreq-cpu0"} 2
`
	registry := prometheus.NewRegistry()
	registry.MustRegister(&Metrics{sensors("2", "0")})
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}

// changing is a file system that can be exchanged.
type changing struct{ atomic.Pointer[fstest.MapFS] }

func (c *changing) Open(name string) (fs.File, error) { return c.Load().Open(name) }

// TestWatchBoard checks that a change is logged once.
func TestWatchBoard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &bytes.Buffer{}
		var root changing
		root.Store(new(sensors("0", "0")))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			WatchBoard(ctx, slog.New(slog.NewTextHandler(log, nil)), &root)
		}()
		steps := []struct{ state, alarm, says string }{
			{"0", "0", ""},
			{"2", "0", `level=WARN msg="the board is throttled" fault=cpufreq-cpu0 state=2 before=0`},
			{"2", "1", `level=WARN msg="the board is throttled" fault="rail VDD_GPU_SOC" state=1 before=0`},
			{"2", "1", ""},
			{"0", "1", `level=INFO msg="the board is throttled less" fault=cpufreq-cpu0 state=0 before=2`},
		}
		synctest.Wait()
		for _, s := range steps {
			root.Store(new(sensors(s.state, s.alarm)))
			time.Sleep(boardPeriod)
			synctest.Wait()
			said := log.String()
			log.Reset()
			if strings.Count(said, "\n") > 1 || !strings.Contains(said, s.says) || s.says == "" && said != "" {
				t.Errorf("state %s, alarm %s: %q, want %q", s.state, s.alarm, said, s.says)
			}
		}
		cancel()
		<-ended
	})
}
