// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"

	"github.com/tegracast/tegracast/board"
	"github.com/tegracast/tegracast/cmd/tegracast/memlock"
	"github.com/tegracast/tegracast/pipeline/codec"
	"github.com/tegracast/tegracast/pipeline/distribution"
	"github.com/tegracast/tegracast/pipeline/ucx"
)

func (p patient) board() finding {
	id := board.Identify(p.root)
	switch {
	case id.Family == board.Other:
		return finding{"board", isNote, strings.TrimSpace("not a known Jetson " + id.Model), ""}
	case id.L4T == "":
		return finding{"board", isWarning, fmt.Sprintf("%s (%s, module %s), without /etc/nv_tegra_release of Jetson Linux", id.Model, id.Family, id.Module), "apt-get install nvidia-l4t-core"}
	}
	return finding{"board", isGood, fmt.Sprintf("%s (%s, module %s), Jetson Linux %s", id.Model, id.Family, id.Module, id.L4T), ""}
}

// libraryFolders are the folders in which Jetson Linux, Debian, NVIDIA's installer and its containers put libraries.
var libraryFolders = []string{
	"usr/lib/aarch64-linux-gnu", "usr/lib/aarch64-linux-gnu/nvidia", "usr/lib/aarch64-linux-gnu/tegra", "usr/lib/x86_64-linux-gnu",
	"usr/local/cuda/lib64", "usr/local/cuda*/targets/*/lib", "usr/lib", "usr/lib64", "usr/local/lib", "usr/local/nvidia/lib64",
}

// library returns the path of a library whose file name matches a pattern, or "" if there is none.
func (p patient) library(pattern string) string {
	for _, dir := range libraryFolders {
		if files, _ := fs.Glob(p.root, dir+"/"+pattern); len(files) > 0 {
			return files[0]
		}
	}
	return ""
}

const cudaLibrary = "libcuda.so.1"

func (p patient) libraries() []finding {
	var list []finding
	for _, l := range []struct{ name, file, pack string }{
		{"libcuda", cudaLibrary, "nvidia-l4t-cuda"}, {"libnvrtc", "libnvrtc.so.*", "nvidia-jetpack"}, {"nvjpeg", "libnvjpeg.so.1[0-9]*", "nvidia-jetpack"},
	} {
		found := p.library(l.file)
		absent := strings.SplitAfter(l.file, ".so")[0] + " is not installed: frames are in host memory, and the CPU does the work"
		switch {
		case found != "":
			list = append(list, finding{l.name, isGood, "/" + found, ""})
		case board.Identify(p.root).Family == board.Other:
			list = append(list, finding{l.name, isNote, absent, ""})
		default:
			list = append(list, finding{l.name, isWarning, absent, "apt-get install " + l.pack})
		}
	}
	return list
}

// turboJPEG checks for libjpeg-turbo, which makes JPEG encoding on the CPU several times faster.
func (p patient) turboJPEG() finding {
	if found := p.library(codec.TurboJPEGName); found != "" {
		return finding{"libjpeg-turbo", isGood, "/" + found, ""}
	}
	return p.lacks(distribution.TurboJPEG, "JPEG on the CPU, and so the page's pictures, take several times as long")
}

// h264 checks for openh264, which payload h264 needs.
func (p patient) h264() finding {
	for _, name := range codec.Libraries {
		if found := p.library(name); found != "" {
			return finding{"openh264", isGood, "/" + found, ""}
		}
	}
	return p.lacks(distribution.OpenH264, "nothing can be sent as H.264 (payload: h264)")
}

// encoder checks whether NVIDIA's encoder answers. An output uses it by its key encoder.
func (p patient) encoder() finding {
	if !p.exists("dev/v4l2-nvenc") && !p.exists("dev/nvhost-msenc") {
		return finding{"encoder", isNote, "no device file of an encoder of NVIDIA's, as on Orin Nano: H.264 is encoded on the CPU", ""}
	}
	path, err := p.attempt("encoder")
	if err != nil {
		return finding{"encoder", isNote, "not used: " + err.Error(), ""}
	}
	return finding{"encoder", isGood, path + " answers: an output with encoder: " + path + " uses it (this project has tried it on no board)", ""}
}

// ucx checks for UCX, which outputs with ucx need: that it is there, is new enough, and can be used by several threads.
func (p patient) ucx() finding {
	found := p.library(ucx.LibraryName)
	if found == "" {
		return p.lacks(distribution.UCX, "nothing can be sent or received by UCX (ucx of an output)")
	}
	release, err := p.attempt("ucx")
	if err != nil {
		return finding{"UCX", isWarning, "/" + found + " cannot be used: " + err.Error() + ": see docs/ucx.md", ""}
	}
	return finding{"UCX", isGood, "/" + found + ", release " + release, ""}
}

// lacks returns the finding that a library is not installed, and its consequence.
func (p patient) lacks(l distribution.Library, consequence string) finding {
	x := finding{l.Name, isNote, "not installed: " + consequence, l.Command(p.root)}
	if x.Command == "" {
		x.Detail += "; " + l.Advice(p.root)
	}
	return x
}

var lockedMemory = regexp.MustCompile(`(?m)^Max locked memory +(\S+)`)

// memlock checks that the service and this process may lock the memory of a camera's frames: 256 MiB, which is enough
// for 8 slots of 4K.
func (p patient) memlock() finding {
	const (
		enough = 256 << 20
		raise  = "sed -i 's/^ *LimitMEMLOCK=.*/LimitMEMLOCK=1G/' " + memlock.DropIn + "; systemctl daemon-reload; systemctl restart tegracast"
	)
	service := "the package's drop-in sets none for the service"
	switch l, err := memlock.OfService(p.root); {
	case err != nil:
		return finding{"memlock", isWarning, err.Error(), raise}
	case l != nil:
		service = fmt.Sprintf("the service %d MiB (%s)", l.Bytes>>20, l.From)
		if l.Bytes < enough {
			return finding{"memlock", isWarning, service + " may lock less than the frames of a camera need", raise}
		}
	}
	m := lockedMemory.FindStringSubmatch(p.text("proc/self/limits"))
	if m == nil || m[1] == "unlimited" {
		return finding{"memlock", isGood, "this process may lock memory without limit; " + service, ""}
	}
	n, _ := strconv.Atoi(m[1])
	if n >= enough {
		return finding{"memlock", isGood, fmt.Sprintf("this process may lock %d MiB; %s", n>>20, service), ""}
	}
	return finding{"memlock", isWarning, fmt.Sprintf("this process may lock only %d KiB of memory; %s", n>>10, service), "ulimit -l unlimited"}
}

// socketBuffer is the number of bytes that the kernel should allow for the buffer of a socket, which is the least that
// a receiver requests. It holds the largest burst of packets, which is that of two consecutive frames.
const socketBuffer = 8 << 20

func (p patient) buffers() finding {
	for _, name := range []string{"wmem_max", "rmem_max"} {
		if n, err := strconv.Atoi(p.text("proc/sys/net/core/" + name)); err == nil && n < socketBuffer {
			return finding{
				"sockets", isWarning, fmt.Sprintf("net.core.%s is %d bytes: bursts may not fit", name, n),
				fmt.Sprintf(`printf 'net.core.wmem_max=%d\nnet.core.rmem_max=%d\n' > /etc/sysctl.d/60-tegracast.conf; sysctl --system`, socketBuffer, socketBuffer),
			}
		}
	}
	return finding{"sockets", isGood, "socket buffers may have the 8 MiB that tegracast asks for", ""}
}

func (p patient) gpio() finding {
	chips, _ := fs.Glob(p.root, "dev/gpiochip*")
	if len(chips) == 0 {
		return finding{"GPIO", isNote, "there is no GPIO chip: no trigger and no status LED", ""}
	}
	return finding{"GPIO", isGood, fmt.Sprintf("chips: %d", len(chips)), ""}
}

// power checks a Jetson's power mode, clocks, power rails and throttling.
func (p patient) power() []finding {
	var list []finding
	if mode := board.PowerMode(p.root); strings.HasPrefix(mode, "MAXN") {
		list = append(list, finding{"power mode", isGood, mode, ""})
	} else if mode != "" {
		list = append(list, finding{"power mode", isWarning, mode + " is not the fastest one; see nvpmodel -p --verbose", ""})
	}
	if governor := p.text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"); governor != "" && governor != "performance" {
		list = append(list, finding{"clocks", isWarning, "the CPU's clock follows the load (" + governor + "): latency varies", "jetson_clocks"})
	}
	for _, r := range board.Rails(p.root) {
		if r.Alarm {
			list = append(list, finding{"power", isWarning, fmt.Sprintf("rail %s is, or was, above its limit: %.2f A; see tegrastats", r.Name, r.Amps), ""})
		}
	}
	for _, t := range board.Throttles(p.root) {
		if t.State > 0 {
			list = append(list, finding{"throttling", isWarning, fmt.Sprintf("%s is at %d; see tegrastats", t.Name, t.State), ""})
		}
	}
	return list
}
