// SPDX-License-Identifier: Apache-2.0

package board

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// files returns a file system of text files.
func files(m map[string]string) fstest.MapFS {
	root := fstest.MapFS{}
	for name, text := range m {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return root
}

// tree returns a root with a device tree, whose properties end with a zero byte.
func tree(model string, compatible ...string) fstest.MapFS {
	return files(map[string]string{
		"proc/device-tree/model":      model + "\x00",
		"proc/device-tree/compatible": strings.Join(compatible, "\x00") + "\x00",
	})
}

// TestIdentify uses compatible properties from Linux (arch/arm64/boot/dts/nvidia) and release lines as written by
// Jetson Linux.
func TestIdentify(t *testing.T) {
	release := func(root fstest.MapFS, line string) fstest.MapFS {
		root["etc/nv_tegra_release"] = &fstest.MapFile{Data: []byte(line)}
		return root
	}
	for _, tt := range []struct {
		source string
		root   fstest.MapFS
		want   Identity
	}{
		{
			"tegra194-p2972-0000.dts; R32.5.1",
			release(tree("NVIDIA Jetson AGX Xavier Developer Kit", "nvidia,p2972-0000", "nvidia,tegra194"),
				"# R32 (release), REVISION: 5.1, GCID: 26202423, BOARD: t186ref, EABI: aarch64, DATE: Fri Feb 19 16:50:29 UTC 2021\n"),
			Identity{Model: "NVIDIA Jetson AGX Xavier Developer Kit", Family: Xavier, Module: "p2972-0000", L4T: "32.5.1"},
		},
		{
			"tegra194-p3509-0000+p3668-0000.dts",
			tree("NVIDIA Jetson Xavier NX Developer Kit (SD-card)", "nvidia,p3509-0000+p3668-0000", "nvidia,tegra194"),
			Identity{Model: "NVIDIA Jetson Xavier NX Developer Kit (SD-card)", Family: Xavier, Carrier: "p3509-0000", Module: "p3668-0000"},
		},
		{
			"tegra234-p3737-0000+p3701-0000.dts; R36.4.3",
			release(tree("NVIDIA Jetson AGX Orin Developer Kit", "nvidia,p3737-0000+p3701-0000", "nvidia,p3701-0000", "nvidia,tegra234"),
				"# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64, DATE: Wed Jan  8 01:49:37 UTC 2025\n# KERNEL_VARIANT: oot\n"),
			Identity{Model: "NVIDIA Jetson AGX Orin Developer Kit", Family: Orin, Carrier: "p3737-0000", Module: "p3701-0000", L4T: "36.4.3"},
		},
		{
			"tegra234-p3768-0000+p3767-0000.dts",
			tree("NVIDIA Jetson Orin NX Engineering Reference Developer Kit", "nvidia,p3768-0000+p3767-0000", "nvidia,p3767-0000", "nvidia,tegra234"),
			Identity{Model: "NVIDIA Jetson Orin NX Engineering Reference Developer Kit", Family: Orin, Carrier: "p3768-0000", Module: "p3767-0000"},
		},
		{
			"Jetson Linux's overlay that has an AGX Orin behave as an Orin Nano",
			tree("Jetson AGX Orin as Nano 4GB", "nvidia,p3737-0000+p3701-0000-as-p3767-0004", "nvidia,tegra234"),
			Identity{Model: "Jetson AGX Orin as Nano 4GB", Family: Orin, Carrier: "p3737-0000", Module: "p3701-0000"},
		},
		{
			"Jetson Linux 36.4's tree of an Orin Nano with the fast modes",
			tree("NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super", "nvidia,p3768-0000+p3767-0005-super", "nvidia,p3767-0005", "nvidia,tegra234"),
			Identity{Model: "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super", Family: Orin, Carrier: "p3768-0000", Module: "p3767-0005"},
		},
		{
			"tegra264-p3971-0089+p3834-0008.dts",
			tree("NVIDIA Jetson AGX Thor", "nvidia,p3971-0089+p3834-0008", "nvidia,p3834-0008", "nvidia,tegra264"),
			Identity{Model: "NVIDIA Jetson AGX Thor", Family: Thor, Carrier: "p3971-0089", Module: "p3834-0008"},
		},
		{"QEMU's virt machine", tree("linux,dummy-virt", "linux,dummy-virt"), Identity{Model: "linux,dummy-virt"}},
		{"a PC", fstest.MapFS{}, Identity{}},
	} {
		if got := Identify(tt.root); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.source, got, tt.want)
		}
	}
}

// TestSensors reads a Jetson Orin's sensors, laid out as in Documentation/hwmon/ina3221.rst, the ABI of the thermal
// class, and NVIDIA's soctherm-oc driver.
func TestSensors(t *testing.T) {
	const hwmon, zone, cooling = "sys/class/hwmon/", "sys/class/thermal/thermal_zone", "sys/class/thermal/cooling_device"
	root := files(map[string]string{
		zone + "0/type": "cpu-thermal\n", zone + "0/temp": "49531\n",
		zone + "10/type": "tj-thermal\n", zone + "10/temp": "-1500\n",
		zone + "2/type":       "off-thermal\n", // switched off: temp cannot be read
		hwmon + "hwmon1/name": "ina3221\n", hwmon + "hwmon1/in1_label": "VDD_GPU_SOC\n", hwmon + "hwmon1/in1_input": "19984\n", hwmon + "hwmon1/curr1_input": "1250\n",
		hwmon + "hwmon1/in2_label": "NC\n", hwmon + "hwmon1/in2_input": "0\n", hwmon + "hwmon1/curr2_input": "0\n",
		hwmon + "hwmon1/in3_label": "VIN_SYS_5V0\n", hwmon + "hwmon1/in3_input": "5016\n", hwmon + "hwmon1/curr3_input": "896\n", hwmon + "hwmon1/curr3_crit_alarm": "1\n",
		hwmon + "hwmon2/name": "pwmfan\n", hwmon + "hwmon2/in1_input": "1\n",
		hwmon + "hwmon3/name": "soctherm_oc\n", hwmon + "hwmon3/oc3_event_cnt": "37\n",
		cooling + "0/type": "cpufreq-cpu0\n", cooling + "0/cur_state": "2\n", cooling + "1/type": "pwm-fan\n", cooling + "1/cur_state": "3\n",
		"var/lib/nvpmodel/status": "pmode:0002 fmode:quiet\n",
		"etc/nvpmodel.conf":       "# comment\n< POWER_MODEL ID=0 NAME=15W >\nCPU_ONLINE CORE_0 1\n\n< POWER_MODEL ID=2 NAME=MAXN_SUPER >\n",
	})
	if got, want := Zones(root), []Zone{{"cpu-thermal", 49.531}, {"tj-thermal", -1.5}}; !slices.Equal(got, want) {
		t.Errorf("zones %v, want %v", got, want)
	}
	if got, want := Rails(root), []Rail{{"VDD_GPU_SOC", 19.984, 1.25, false}, {"VIN_SYS_5V0", 5.016, 0.896, true}}; !slices.Equal(got, want) {
		t.Errorf("rails %v, want %v", got, want)
	}
	clocks := files(map[string]string{
		"sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq": "2201600\n", "sys/devices/system/cpu/cpufreq/policy4/scaling_cur_freq": "729600\n",
		"sys/devices/system/cpu/cpufreq/policy8/scaling_max_freq": "1\n", "sys/class/devfreq/17000000.gpu/cur_freq": "1300500000\n",
	})
	if got, want := Clocks(clocks), []Clock{{"cpu0", 2201.6e6}, {"cpu4", 729.6e6}, {"17000000.gpu", 1300.5e6}}; !slices.Equal(got, want) {
		t.Errorf("clocks %v, want %v", got, want)
	}
	if got, want := Throttles(root), []Throttle{{"cpufreq-cpu0", 2}, {"oc3", 37}}; !slices.Equal(got, want) {
		t.Errorf("throttles %v, want %v", got, want)
	}
	if got := PowerMode(root); got != "MAXN_SUPER" {
		t.Errorf("power mode %q", got)
	}
	for status, want := range map[string]string{"pmode:0007": "7", "pmode:": "", "pmode:x": "", "": "", "pmode: ": ""} {
		if got := PowerMode(files(map[string]string{"var/lib/nvpmodel/status": status})); got != want {
			t.Errorf("power mode of %q: %q, want %q", status, got, want)
		}
	}
	if z, r, h := Zones(fstest.MapFS{}), Rails(fstest.MapFS{}), Throttles(fstest.MapFS{}); z != nil || r != nil || h != nil {
		t.Errorf("an empty root has %v %v %v", z, r, h)
	}
}

// TestThisMachine checks that reading this machine's files does no harm.
func TestThisMachine(t *testing.T) {
	root := os.DirFS("/")
	t.Log(Identify(root), Zones(root), Rails(root), Throttles(root), PowerMode(root))
}

func FuzzBoard(f *testing.F) {
	f.Add("nvidia,p3737-0000+p3701-0000\x00nvidia,tegra234\x00", "# R36 (release), REVISION: 4.3, GCID\n", "pmode:0002 fmode:quiet", "< POWER_MODEL ID=2 NAME=MAXN >\n", "49531\n")
	f.Fuzz(func(t *testing.T, compatible, release, status, conf, number string) {
		root := files(map[string]string{
			"proc/device-tree/compatible": compatible, "etc/nv_tegra_release": release, "var/lib/nvpmodel/status": status, "etc/nvpmodel.conf": conf,
			"sys/class/thermal/thermal_zone0/type": compatible, "sys/class/thermal/thermal_zone0/temp": number,
			"sys/class/hwmon/hwmon0/name": "ina3221", "sys/class/hwmon/hwmon0/in1_input": number, "sys/class/hwmon/hwmon0/curr1_input": number,
			"sys/class/hwmon/hwmon0/in1_label": release,
		})
		first := Identify(root)
		Zones(root)
		Rails(root)
		Throttles(root)
		PowerMode(root)
		if again := Identify(root); !reflect.DeepEqual(first, again) {
			t.Errorf("%+v, then %+v", first, again)
		}
	})
}
