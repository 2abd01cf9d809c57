// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"testing"
)

// TestDoctorKernel covers headers, DKMS and signatures. DKMS's tree is as made by dkms(8) of release 3 (is_module_added
// and its neighbours in dkms.in).
func TestDoctorKernel(t *testing.T) {
	const (
		module    = "sys/module/tegra_p2p/parameters/allow_unsafe"
		built     = "lib/modules/5.15.148-tegra/updates/tegra_p2p.ko"
		headers   = "lib/modules/5.15.148-tegra/build/Makefile"
		installed = "var/lib/dkms/tegra_p2p/kernel-5.15.148-tegra-aarch64/module/tegra_p2p.ko"
		source    = "var/lib/dkms/tegra_p2p/1/source/dkms.conf"
		log       = "var/lib/dkms/tegra_p2p/1/build/make.log"
		enforce   = "sys/module/module/parameters/sig_enforce"
		header    = "usr/src/nvidia/nvidia-oot/include/linux/nv-p2p.h"
		model     = "proc/device-tree/compatible"
	)
	for _, tt := range []trial{
		{"Jetson Linux's header", nil, "headers", isGood, "nv-p2p is declared by /" + header},
		{"IGX's header", map[string]string{header: "-", "usr/src/linux-headers-tegra-oot-5.15.0-1012/include/linux/nv-p2p.h": ""}, "headers", isGood, "/usr/src/linux-headers-tegra-oot-5.15.0-1012/include/linux/nv-p2p.h"},
		{"Jetson Linux 35's header", map[string]string{header: "-", "lib/modules/5.15.148-tegra/build/nvidia/include/linux/nv-p2p.h": ""}, "headers", isGood, "build/nvidia/include/linux/nv-p2p.h"},
		{"no header of nv-p2p", map[string]string{header: "-"}, "headers", isGood, "declarations of its own"},
		{"no headers, and a module", map[string]string{headers: "-"}, "headers", isNote, "could not compile it again"},
		{"no headers, no module", map[string]string{headers: "-", built: "-", module: "-", installed: "-"}, "headers", isMissing, "DKMS cannot compile"},
		{"installed", nil, "DKMS", isGood, "tegra_p2p 1 is installed for Linux 5.15.148-tegra"},
		{"without DKMS", map[string]string{source: "-", installed: "-"}, "DKMS", isNote, "after an update of the kernel"},
		{"unknown to DKMS", map[string]string{source: "-", installed: "-", module: "-", "usr/src/tegra_p2p-1/dkms.conf": ""}, "DKMS", isMissing, "DKMS does not know it"},
		{"not installed", map[string]string{source: "-", installed: "-", module: "-"}, "DKMS", isNote, "tegracast-dkms is not installed"},
		{"failed", map[string]string{
			installed: "-", module: "-", built: "-",
			log: "make: Entering directory '/usr/src/linux-headers-5.15.148-tegra'\n  CC [M]  main.o\nmain.c:3:10: fatal error: linux/xyz.h: No such file or directory\nmake[2]: *** [main.o] Error 1\n",
		}, "DKMS", isMissing, "it failed: main.c:3:10: fatal error: linux/xyz.h: No such file or directory; see /" + log},
		{"failed, and loaded", map[string]string{installed: "-", log: "x"}, "DKMS", isWarning, "came from elsewhere: compiling it failed: its log names no error"},
		{"for another kernel", map[string]string{installed: "-", module: "-", built: "-", "lib/modules/5.15.136-tegra/updates/tegra_p2p.ko": ""}, "module", isMissing, "installed for Linux 5.15.136-tegra, not for the running one"},
		{"no headers", map[string]string{installed: "-", module: "-", built: "-", headers: "-"}, "DKMS", isNote, "not checked: without headers"},
		{"no package", map[string]string{installed: "-", source: "-", module: "-", built: "-"}, "module", isMissing, "no repository has its package"},
		{"no signature wanted", nil, "signatures", isGood, "accepts unsigned modules; Secure Boot is off"},
		{"Secure Boot alone", map[string]string{secureBoot: "\x06\x00\x00\x00\x01"}, "signatures", isGood, "accepts unsigned modules; Secure Boot is on"},
		{"signed and loaded", map[string]string{enforce: "Y\n"}, "signatures", isGood, "accepted tegra_p2p"},
		{"a Jetson's key", map[string]string{enforce: "Y\n", module: "-", "var/lib/dkms/mok.pub": ""}, "signatures", isMissing, "use /lib/modules/5.15.148-tegra/build/scripts/sign-file sha512"},
		{"DKMS's key", map[string]string{"sys/kernel/security/lockdown": "none [integrity] confidentiality\n", module: "-", model: "-", "var/lib/dkms/mok.pub": ""}, "signatures", isMissing, "enrol its key"},
		{"too old", map[string]string{"proc/sys/kernel/osrelease": "5.4.0\n"}, "kernel", isMissing, "needs 5.10"},
		{"no release", map[string]string{"proc/sys/kernel/osrelease": "-"}, "kernel", isNote, "not checked"},
	} {
		tt.run(t, nil)
	}
}
