// SPDX-License-Identifier: Apache-2.0

package board

import (
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Family is a generation of Jetson modules, by the SoC's name in the device tree's compatible property.
type Family string

// The families; Other is a machine that is no Jetson of these.
const (
	Other  Family = ""
	Xavier Family = "Xavier" // nvidia,tegra194
	Orin   Family = "Orin"   // nvidia,tegra234
	Thor   Family = "Thor"   // nvidia,tegra264
)

// Identity is which board this is. What is not known is empty.
type Identity struct {
	Model   string `json:"model,omitempty"`   // as the device tree says it
	Family  Family `json:"family,omitempty"`  // of the SoC
	Module  string `json:"module,omitempty"`  // part number of the module, such as p3701-0005
	Carrier string `json:"carrier,omitempty"` // part number of the carrier board
	L4T     string `json:"l4t,omitempty"`     // release of Jetson Linux, such as 36.4.3
}

// family knows the SoCs' names in the compatible property.
func family(soc string) Family {
	return map[string]Family{"nvidia,tegra194": Xavier, "nvidia,tegra234": Orin, "nvidia,tegra264": Thor}[soc]
}

// boardNames finds the part numbers in a compatible entry such as nvidia,p3737-0000+p3701-0005: the carrier's and the module's.
// An emulated module has -as- and the other one's number behind it, one in the fast modes of Jetson Linux 36.4 and
// later -super. Jetson AGX Xavier has one number for both.
var boardNames = regexp.MustCompile(`^nvidia,(?:(p[0-9]{4}-[0-9]{4})\+)?(p[0-9]{4}-[0-9]{4})(?:-as-.*|-super)?$`)

// Identify reads who the machine is; root is the file system's root.
func Identify(root fs.FS) Identity {
	id := Identity{Model: text(root, "proc/device-tree/model"), L4T: release(root)}
	for _, entry := range strings.Split(text(root, "proc/device-tree/compatible"), "\x00") {
		if m := boardNames.FindStringSubmatch(entry); m != nil && id.Module == "" {
			id.Carrier, id.Module = m[1], m[2]
		}
		if f := family(entry); f != Other {
			id.Family = f
		}
	}
	return id
}

// l4tRelease is the first line of /etc/nv_tegra_release: # R36 (release), REVISION: 4.3, GCID: …
var l4tRelease = regexp.MustCompile(`^# R([0-9]+) \(release\), REVISION: ([0-9.]+)`)

func release(root fs.FS) string {
	if m := l4tRelease.FindStringSubmatch(text(root, "etc/nv_tegra_release")); m != nil {
		return m[1] + "." + m[2]
	}
	return ""
}

// A Zone is a temperature.
type Zone struct {
	Name    string  `json:"name"` // such as cpu-thermal
	Celsius float64 `json:"celsius"`
}

// Zones reads the thermal zones (Documentation/ABI/testing/sysfs-class-thermal). One that is switched off, and answers with an
// error, is left out.
func Zones(root fs.FS) []Zone {
	var list []Zone
	for _, dir := range glob(root, "sys/class/thermal/thermal_zone*") {
		name := text(root, path.Join(dir, "type"))
		if milli, ok := number(root, path.Join(dir, "temp")); ok && name != "" {
			list = append(list, Zone{name, float64(milli) / 1000})
		}
	}
	return list
}

// A Rail is a supply that an INA3221 measures.
type Rail struct {
	Name  string  `json:"name"` // such as VDD_GPU_SOC
	Volts float64 `json:"volts"`
	Amps  float64 `json:"amps"`
	Alarm bool    `json:"alarm"` // the current is, or was, above a limit: the board throttles
}

// Rails reads the INA3221s (Documentation/hwmon/ina3221.rst): channels 1 to 3 of each.
func Rails(root fs.FS) []Rail {
	var list []Rail
	for _, dir := range glob(root, "sys/class/hwmon/hwmon*") {
		if text(root, path.Join(dir, "name")) != "ina3221" {
			continue
		}
		for _, channel := range []string{"1", "2", "3"} {
			milliamps, ok := number(root, path.Join(dir, "curr"+channel+"_input"))
			millivolts, also := number(root, path.Join(dir, "in"+channel+"_input"))
			if !ok || !also {
				continue
			}
			name := text(root, path.Join(dir, "in"+channel+"_label"))
			if name == "" || name == "NC" {
				continue
			}
			critical, _ := number(root, path.Join(dir, "curr"+channel+"_crit_alarm"))
			average, _ := number(root, path.Join(dir, "curr"+channel+"_max_alarm"))
			list = append(list, Rail{name, float64(millivolts) / 1000, float64(milliamps) / 1000, critical+average > 0})
		}
	}
	return list
}

// A Clock is one that follows the load, or the temperature.
type Clock struct {
	Name  string  `json:"name"` // such as cpu0, or 17000000.gpu
	Hertz float64 `json:"hertz"`
}

// Clocks reads the CPUs' (Documentation/admin-guide/pm/cpufreq.rst: scaling_cur_freq is in kHz; a policy is of one or more CPUs,
// and has the first one's number) and those of devices such as the GPU (Documentation/ABI/testing/sysfs-class-devfreq: Hz).
func Clocks(root fs.FS) []Clock {
	var list []Clock
	for _, dir := range glob(root, "sys/devices/system/cpu/cpufreq/policy*") {
		if kilo, ok := number(root, path.Join(dir, "scaling_cur_freq")); ok {
			list = append(list, Clock{"cpu" + strings.TrimPrefix(path.Base(dir), "policy"), float64(kilo) * 1e3})
		}
	}
	for _, dir := range glob(root, "sys/class/devfreq/*") {
		if hertz, ok := number(root, path.Join(dir, "cur_freq")); ok {
			list = append(list, Clock{path.Base(dir), float64(hertz)})
		}
	}
	return list
}

// A Throttle is a cooling device that holds something back, or an over-current event.
type Throttle struct {
	Name  string `json:"name"`  // such as cpufreq-cpu0, or soctherm's oc1
	State int    `json:"state"` // of a cooling device: 0 is free; of an over-current: events so far
}

// Throttles reads the cooling devices that are no fans, and Jetson's over-current counters (Jetson Linux Developer Guide,
// "Over-Current Throttling": /sys/class/hwmon/hwmon*/ocN_event_cnt of soctherm_oc).
func Throttles(root fs.FS) []Throttle {
	var list []Throttle
	for _, dir := range glob(root, "sys/class/thermal/cooling_device*") {
		name := text(root, path.Join(dir, "type"))
		if n, ok := number(root, path.Join(dir, "cur_state")); ok && !strings.Contains(name, "fan") {
			list = append(list, Throttle{name, n})
		}
	}
	for _, file := range glob(root, "sys/class/hwmon/hwmon*/oc*_event_cnt") {
		if n, ok := number(root, file); ok {
			list = append(list, Throttle{strings.TrimSuffix(path.Base(file), "_event_cnt"), n})
		}
	}
	return list
}

// powerModel finds a model's name in nvpmodel.conf: < POWER_MODEL ID=0 NAME=MAXN >
var powerModel = regexp.MustCompile(`(?m)^< POWER_MODEL ID=([0-9]+) NAME=(\S+) >`)

// PowerMode is the name of nvpmodel's mode, such as MAXN; empty where there is no nvpmodel. /var/lib/nvpmodel/status has the
// mode's number as "pmode:0000", /etc/nvpmodel.conf the names.
func PowerMode(root fs.FS) string {
	digits, ok := strings.CutPrefix(text(root, "var/lib/nvpmodel/status"), "pmode:")
	id, err := strconv.Atoi(strings.Fields(digits + " x")[0])
	if !ok || err != nil {
		return ""
	}
	for _, m := range powerModel.FindAllStringSubmatch(text(root, "etc/nvpmodel.conf"), -1) {
		if m[1] == strconv.Itoa(id) {
			return m[2]
		}
	}
	return strconv.Itoa(id)
}

// maxText is the longest file that is read whole, in bytes: nvpmodel.conf has tens of thousands.
const maxText = 1 << 20

// text reads a small file without the zero bytes and spaces at its end; one that cannot be read is empty.
func text(root fs.FS, name string) string {
	file, err := root.Open(name)
	if err != nil {
		return ""
	}
	defer file.Close()
	b := make([]byte, 0, 4096)
	for len(b) < maxText {
		n, err := file.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err != nil {
			break
		}
		b = slices.Grow(b, 4096)
	}
	return strings.TrimRight(string(b), "\x00 \n\t")
}

func number(root fs.FS, name string) (n int, ok bool) {
	n, err := strconv.Atoi(text(root, name))
	return n, err == nil
}

// glob lists in the order of the numbers at the names' ends.
func glob(root fs.FS, pattern string) []string {
	list, err := fs.Glob(root, pattern)
	if err != nil {
		return nil
	}
	slices.SortStableFunc(list, func(a, b string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
	return list
}
