// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/tegracast/tegracast/board/vjetson"
	"github.com/tegracast/tegracast/cmd/tegracast/programtest"
)

// gpuFiles returns what a test installs for the device files of a Jetson's GPU and a libcuda that opens them: a kernel
// module, udev rules as in Jetson Linux, and a drop-in of the service.
func gpuFiles(t *testing.T, kernel vjetson.Kernel) map[string]string {
	t.Helper()
	build := filepath.Join(t.TempDir(), "nvgpu")
	if err := vjetson.BuildModule(t.Context(), kernel, "testdata/nvgpu", build); err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"/opt/standin/libcuda.so.1":                                   filepath.Join(lostGPU(t, "aarch64-linux-gnu-gcc"), "libcuda.so.1"),
		"/usr/lib/modules/" + kernel.Release + "/updates/gpunodes.ko": filepath.Join(build, "gpunodes.ko"),
		"/etc/udev/rules.d/99-tegra-devices.rules":                    "testdata/nvgpu/tegra-devices.rules",
		"/root/standin.conf":                                          programtest.Write(t, "standin", standinUnit),
		"/root/standin.modules":                                       programtest.Write(t, "modules", "vgem\ngpunodes\n"),
	}
}

// standinUnit makes the service find the stand-in, which opens the device files that CUDA opens on Orin: those that snapd
// allows (interfaces/builtin/nvidia_tegra_drivers_support.go), tsg and nvsciipc.
const standinUnit = `[Service]
Environment=LD_LIBRARY_PATH=/opt/standin STANDIN_LOST=/run/lost
Environment=STANDIN_DEVICES=/dev/nvgpu/igpu0/power:/dev/nvgpu/igpu0/ctrl:/dev/nvgpu/igpu0/as:/dev/nvgpu/igpu0/channel:/dev/nvgpu/igpu0/tsg:/dev/nvmap:/dev/nvsciipc:/dev/host1x-fence:/dev/dri/renderD128
`

const (
	standinConf    = "/etc/systemd/system/tegracast.service.d/standin.conf"
	standinModules = "/etc/modules-load.d/standin.conf"
)

// said waits until the current run of the service has logged a text.
func said(text string) string {
	return "(run=$(systemctl show -P InvocationID tegracast); for i in $(seq 300); do journalctl -q _SYSTEMD_INVOCATION_ID=$run -o cat | grep -q '" + text + "' && exit 0; sleep .1; done; exit 1)"
}

// opensGPU gives the machine a GPU's device files while the service runs. Without the device rules the service cannot
// open them, and says so. With them it streams from CUDA's memory, under all of the unit's restrictions.
func (a *installed) opensGPU(t *testing.T) {
	a.must(t, "modprobe -a vgem gpunodes; udevadm settle; mkdir -p "+filepath.Dir(standinConf)+"; cp /root/standin.conf "+standinConf+"; systemctl mask --runtime tegracast-devices; systemctl restart tegracast; "+active)
	a.must(t, said("a GPU is present, but not used.*cuInit.*/dev/nvgpu/igpu0/power: operation not permitted; /dev/nvmap: operation not permitted; /dev/host1x-fence: operation not permitted .*remedy=.systemctl restart tegracast"))
	a.is(t, "journalctl -q -b -u tegracast PRIORITY=4 -o cat | grep -c 'a GPU is present' | grep -cv '^0$'; grep -c ' 17000000.gpu$' /proc/devices; ls /dev/nvgpu/igpu0", "1\n1\npower\n")
	a.must(t, "systemctl unmask --runtime tegracast-devices; systemctl restart tegracast; "+active)
	a.must(t, said("memory back end is cuda"))
	a.is(t, "grep -c ' 17000000.gpu$' /proc/devices; systemctl show -P DeviceAllow tegracast | grep -c '^/dev/nvgpu/igpu0/ctrl rw$'; stat -c '%G %a' /dev/nvgpu/igpu0/ctrl /dev/dri/renderD128", "2\n1\nvideo 660\nrender 660\n")
	a.back(t, "CUDA's memory", time.Now())
	a.is(t, "runuser -u tegracast -- tegracast doctor | grep -c '^good     GPU '", "1\n")
}

// bootsGPU checks a boot during which a module makes the GPU's device files.
func (a *installed) bootsGPU(t *testing.T) {
	a.must(t, said("memory back end is cuda"))
	a.must(t, "rm "+standinConf+" "+standinModules+"; systemctl daemon-reload; systemctl restart tegracast; sync; "+active)
	a.back(t, "without a GPU", time.Now())
}
