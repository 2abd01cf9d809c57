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

// Family is a generation of Jetson modules, determined by the SoC's name in the device tree's compatible property.
type Family string

// The families; Other is any other machine.
const (
	Other  Family = ""
	Xavier Family = "Xavier" // nvidia,tegra194
	Orin   Family = "Orin"   // nvidia,tegra234
	Thor   Family = "Thor"   // nvidia,tegra264
)

// Identity identifies a board. Unknown fields are empty.
type Identity struct {
	Model   string `json:"model,omitempty"`   // from the device tree
	Family  Family `json:"family,omitempty"`  // of the SoC
	Module  string `json:"module,omitempty"`  // part number of the module, such as p3701-0005
	Carrier string `json:"carrier,omitempty"` // part number of the carrier board
	L4T     string `json:"l4t,omitempty"`     // release of Jetson Linux, such as 36.4.3
}

// family returns the family of a SoC by its name in the compatible property, or Other.
func family(soc string) Family {
	return map[string]Family{"nvidia,tegra194": Xavier, "nvidia,tegra234": Orin, "nvidia,tegra264": Thor}[soc]
}

// boardNames matches the part numbers of carrier and module in a compatible entry such as nvidia,p3737-0000+p3701-0005.
// For an emulated module, -as- and the other module's number follow; in the fast modes of Jetson Linux 36.4 and later,
// -super follows. Jetson AGX Xavier has a single number for both.
var boardNames = regexp.MustCompile(`^nvidia,(?:(p[0-9]{4}-[0-9]{4})\+)?(p[0-9]{4}-[0-9]{4})(?:-as-.*|-super)?$`)

// Identify identifies the machine whose file system is root.
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

// l4tRelease matches the first line of /etc/nv_tegra_release: # R36 (release), REVISION: 4.3, GCID: …
var l4tRelease = regexp.MustCompile(`^# R([0-9]+) \(release\), REVISION: ([0-9.]+)`)

func release(root fs.FS) string {
	if m := l4tRelease.FindStringSubmatch(text(root, "etc/nv_tegra_release")); m != nil {
		return m[1] + "." + m[2]
	}
	return ""
}

// A Zone is the temperature of a thermal zone.
type Zone struct {
	Name    string  `json:"name"` // such as cpu-thermal
	Celsius float64 `json:"celsius"`
}

// Zones reads the thermal zones (Documentation/ABI/testing/sysfs-class-thermal). It leaves out zones that cannot be
// read, such as those that are switched off.
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

// A Rail is a power supply rail measured by an INA3221.
type Rail struct {
	Name  string  `json:"name"` // such as VDD_GPU_SOC
	Volts float64 `json:"volts"`
	Amps  float64 `json:"amps"`
	Alarm bool    `json:"alarm"` // the current is or was above a limit, so the board is throttled
}

// Rails reads channels 1 to 3 of each INA3221 (Documentation/hwmon/ina3221.rst). It leaves out channels that lack the
// reading of the current or of the voltage, or a label, or whose label is NC.
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

// A Clock is a clock whose frequency follows the load or the temperature.
type Clock struct {
	Name  string  `json:"name"` // such as cpu0, or 17000000.gpu
	Hertz float64 `json:"hertz"`
}

// Clocks reads the clocks of the CPUs (Documentation/admin-guide/pm/cpufreq.rst: scaling_cur_freq is in kHz; a policy
// covers one or more CPUs and has the number of the first one) and of devices such as the GPU
// (Documentation/ABI/testing/sysfs-class-devfreq: Hz).
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

// A Throttle is a cooling device that reduces performance, or an over-current counter.
type Throttle struct {
	Name  string `json:"name"`  // such as cpufreq-cpu0, or oc1 of soctherm
	State int    `json:"state"` // of a cooling device: 0 means no throttling; of an over-current counter: number of events
}

// Throttles reads the cooling devices except fans, and Jetson's over-current counters (Jetson Linux Developer Guide,
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

// powerModel matches a model's name in nvpmodel.conf: < POWER_MODEL ID=0 NAME=MAXN >
var powerModel = regexp.MustCompile(`(?m)^< POWER_MODEL ID=([0-9]+) NAME=(\S+) >`)

// PowerMode returns the name of nvpmodel's mode, such as MAXN, or its number if it has no name, or "" if it is unknown.
// /var/lib/nvpmodel/status contains the mode's number as "pmode:0000", /etc/nvpmodel.conf the names.
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

// maxText is the approximate number of bytes after which text stops reading; nvpmodel.conf has tens of thousands.
const maxText = 1 << 20

// text returns the content of a file without trailing zero bytes and white space, or "" if it cannot be opened. It
// stops reading after about maxText bytes, or at an error.
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

// glob returns the matches, sorted by length and then by name, so that numbers at the ends of names are in order.
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

// A Reading is the value of one sensor.
type Reading struct {
	Name  string
	Value float64
	Unit  string // °C or W
	Alarm bool   // of a rail: its current is or was above a limit (Rail.Alarm)
}

// Readings returns the temperatures of the board in °C and the power of its rails in W. root is the machine's file
// system.
func Readings(root fs.FS) (list []Reading) {
	for _, z := range Zones(root) {
		list = append(list, Reading{Name: z.Name, Value: z.Celsius, Unit: "°C"})
	}
	for _, r := range Rails(root) {
		list = append(list, Reading{Name: r.Name, Value: r.Volts * r.Amps, Unit: "W", Alarm: r.Alarm})
	}
	return list
}
