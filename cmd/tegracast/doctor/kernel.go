// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tegracast/tegracast/board"
)

// release returns the release of the running kernel.
func (p patient) release() string { return p.text("proc/sys/kernel/osrelease") }

var kernelVersion = regexp.MustCompile(`^([0-9]+)\.([0-9]+)`)

// olderThan reports whether the running kernel is known to be older than a release of Linux.
func (p patient) olderThan(major, minor int) bool {
	m := kernelVersion.FindStringSubmatch(p.release())
	if m == nil {
		return false
	}
	first, _ := strconv.Atoi(m[1])
	second, _ := strconv.Atoi(m[2])
	return first < major || first == major && second < minor
}

// kernel reports whether the module can be compiled for the running kernel (docs/module.md, "Kernels").
func (p patient) kernel() finding {
	release := p.release()
	switch {
	case !kernelVersion.MatchString(release):
		return finding{"kernel", isNote, "not checked: /proc/sys/kernel/osrelease cannot be read", ""}
	case p.olderThan(5, 10):
		return finding{"kernel", isMissing, "Linux " + release + " is too old for tegra_p2p, which needs 5.10: flash Jetson Linux 35 (JetPack 5) or later", ""}
	}
	return finding{"kernel", isGood, "Linux " + release, ""}
}

// moduleFor returns the file of the module for the kernel of the given release, or "", and for which other kernels it is
// installed.
func (p patient) moduleFor(release string) (file string, others []string) {
	for _, where := range []string{"updates", "updates/dkms", "extra"} {
		files, _ := fs.Glob(p.root, "lib/modules/*/"+where+"/tegra_p2p.ko*")
		for _, name := range files {
			kernel := strings.Split(name, "/")[2]
			if kernel == release {
				file = name
			} else {
				others = append(others, kernel)
			}
		}
	}
	return file, others
}

// headerFolders are the folders in which Kbuild looks for nv-p2p.h, in its order (tegra/kmod/Kbuild).
var headerFolders = []string{
	"usr/src/nvidia/nvidia-oot/include/linux", "usr/src/linux-headers-tegra-oot*/include/linux", "usr/src/linux-headers-tegra-oot*/nvidia-oot/include/linux",
	"lib/modules/%s/build/include/linux", "lib/modules/%s/build/nvidia/include/linux", "lib/modules/%s/build/../nvidia/include/linux",
}

func (p patient) nvp2pHeader(release string) string {
	for _, folder := range headerFolders {
		if strings.Contains(folder, "%s") {
			folder = path.Clean(fmt.Sprintf(folder, release))
		}
		if files, _ := fs.Glob(p.root, folder+"/nv-p2p.h"); len(files) > 0 {
			return files[0]
		}
	}
	return ""
}

// headers checks for the kernel headers with which DKMS compiles the module.
func (p patient) headers() finding {
	const what = "headers"
	release := p.release()
	if p.exists("lib/modules/" + release + "/build/Makefile") {
		detail := "the headers of Linux " + release + " are installed"
		if name := p.nvp2pHeader(release); name != "" {
			detail += "; nv-p2p is declared by /" + name
		} else if p.nvp2p() {
			detail += "; there is no nv-p2p.h of Jetson Linux: the module is compiled with declarations of its own"
		}
		return finding{what, isGood, detail, ""}
	}
	if file, _ := p.moduleFor(release); file != "" || p.exists("sys/module/tegra_p2p") {
		return finding{what, isNote, "the headers of Linux " + release + " are not installed: the module is, but DKMS could not compile it again", ""}
	}
	missing := "the headers of Linux " + release + " are not installed: DKMS cannot compile the module"
	return finding{what, isMissing, missing, "apt-get install " + p.headerPackages()}
}

// headerPackages returns the names of the packages with the headers of the running kernel.
func (p patient) headerPackages() string {
	switch id := board.Identify(p.root); {
	case id.Family == board.Other:
		return "linux-headers-" + p.release()
	case strings.HasPrefix(id.L4T, "36."):
		return "nvidia-l4t-kernel-headers nvidia-l4t-kernel-oot-headers"
	}
	return "nvidia-l4t-kernel-headers"
}

const dkmsTree = "var/lib/dkms/tegra_p2p"

// dkmsVersion returns the version of the module that DKMS knows, or "".
func (p patient) dkmsVersion() string {
	sources, _ := fs.Glob(p.root, dkmsTree+"/*/source")
	if len(sources) == 0 {
		return ""
	}
	return path.Base(path.Dir(sources[len(sources)-1]))
}

// dkms reports the progress of DKMS. Its tree has VERSION/source after the module was added, VERSION/KERNEL/ARCH/module
// after it was built, kernel-KERNEL-ARCH after it was installed, and VERSION/build/make.log after a failed build
// (dkms(8)).
func (p patient) dkms() finding {
	const what = "DKMS"
	release := p.release()
	loaded, version := p.exists("sys/module/tegra_p2p"), p.dkmsVersion()
	if version == "" {
		if unknown, _ := fs.Glob(p.root, "usr/src/tegra_p2p-*/dkms.conf"); len(unknown) > 0 && !loaded {
			version := strings.TrimPrefix(path.Base(path.Dir(unknown[0])), "tegra_p2p-")
			return finding{what, isMissing, "tegra_p2p " + version + " is in /usr/src, but DKMS does not know it", "dkms install tegra_p2p/" + version}
		}
		if loaded {
			return finding{what, isNote, "DKMS does not manage tegra_p2p: after an update of the kernel compile the module by hand", ""}
		}
		return finding{what, isNote, "not checked: tegracast-dkms is not installed", ""}
	}
	if links, _ := fs.Glob(p.root, dkmsTree+"/kernel-"+release+"-*"); len(links) > 0 {
		return finding{what, isGood, "tegra_p2p " + version + " is installed for Linux " + release, ""}
	}
	bad := finding{what, isMissing, "tegra_p2p " + version + " is not installed for Linux " + release, "dkms install tegra_p2p/" + version + " -k " + release}
	if loaded {
		bad.Grade, bad.Detail = isWarning, bad.Detail+": the loaded module came from elsewhere"
	}
	log := dkmsTree + "/" + version + "/build/make.log"
	switch {
	case p.exists(log):
		bad.Detail += ": compiling it failed: " + firstError(p.text(log)) + "; see /" + log
	case !p.exists("lib/modules/" + release + "/build/Makefile"):
		return finding{what, isNote, "not checked: without headers nothing is compiled", ""}
	}
	return bad
}

// firstError returns the first line of a compiler's log that mentions an error, or a text that says that there is none.
func firstError(log string) string {
	for line := range strings.Lines(log) {
		if strings.Contains(line, "rror: ") || strings.Contains(line, "***") || strings.Contains(line, "ERROR") {
			return strings.TrimSpace(line)
		}
	}
	return "its log names no error"
}

// secureBoot is the file of the EFI variable SecureBoot: four bytes of attributes, then 1 if Secure Boot is on (UEFI
// 2.10 §3.3).
const secureBoot = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"

// signing reports whether the kernel accepts modules without a signature.
func (p patient) signing() finding {
	const what = "signatures"
	variable, _ := fs.ReadFile(p.root, secureBoot)
	boot := "Secure Boot is off or not supported"
	if len(variable) == 5 && variable[4] == 1 {
		boot = "Secure Boot is on"
	}
	lockdown := p.text("sys/kernel/security/lockdown")
	enforced := p.text("sys/module/module/parameters/sig_enforce") == "Y" || strings.Contains(lockdown, "[integrity]") || strings.Contains(lockdown, "[confidentiality]")
	switch {
	case !enforced:
		return finding{what, isGood, "the kernel accepts unsigned modules; " + boot, ""}
	case p.exists("sys/module/tegra_p2p"):
		return finding{what, isGood, "the kernel accepts signed modules only, and accepted tegra_p2p; " + boot, ""}
	}
	detail := "the kernel accepts signed modules only; " + boot + ". "
	keys := []string{"var/lib/shim-signed/mok/MOK.der", "var/lib/dkms/mok.pub"} // of Ubuntu and of DKMS
	i := slices.IndexFunc(keys, p.exists)
	if i < 0 || board.Identify(p.root).Family != board.Other { // a Jetson's UEFI starts the kernel without shim, which manages the MOKs
		return finding{what, isMissing, detail + "Sign the module with a key that the kernel was built with: use /lib/modules/" + p.release() +
			"/build/scripts/sign-file sha512 KEY CERTIFICATE tegra_p2p.ko; see docs/bringup.md", ""}
	}
	return finding{what, isMissing, detail + "DKMS has signed tegra_p2p: enrol its key, and confirm it at the console when the machine starts again", "mokutil --import /" + keys[i]}
}
