// SPDX-License-Identifier: Apache-2.0

package vjetson

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
)

type arch struct {
	name        string // Debian's and Go's
	qemu        string // name of QEMU's program
	qemuPackage string
	board       []string // QEMU's machine and processor
	iommuBoard  []string // the same with an IOMMU
	console     string
	append      string // for the kernel's command line

	functionBoard  []string // the board with an IOMMU that supports vfio-user
	functionAppend string   // further words for the kernel's command line with functionBoard
	virtioIOMMU    bool     // the IOMMU of functionBoard is virtio's

	makeArch   string // its name in the kernel's build
	gcc        string // the cross compiler, for hosts of other architectures
	gccPackage string
}

var arches = []arch{
	{
		name: "arm64",
		qemu: "qemu-system-aarch64", qemuPackage: "qemu-system-arm",
		board:      []string{"-machine", "virt,gic-version=3", "-cpu", "cortex-a57"},
		iommuBoard: []string{"-machine", "virt,gic-version=3,iommu=smmuv3", "-cpu", "cortex-a57"},
		// With page tables of its own for the kernel, QEMU forgets its TLB twice in each system call.
		console: "ttyAMA0", append: "kpti=off",
		functionBoard: []string{"-machine", "virt,gic-version=3", "-cpu", "cortex-a57", "-device", "virtio-iommu-pci"},
		// Without a limit a device would wait for the IOMMU's driver indefinitely. On a busy host it must not start
		// without it.
		functionAppend: "deferred_probe_timeout=-1", virtioIOMMU: true,
		makeArch: "arm64", gcc: "aarch64-linux-gnu-gcc", gccPackage: "gcc-aarch64-linux-gnu",
	},
	{
		name: "amd64",
		qemu: "qemu-system-x86_64", qemuPackage: "qemu-system-x86",
		board:      []string{"-machine", "q35", "-cpu", "qemu64"},
		iommuBoard: []string{"-machine", "q35", "-cpu", "qemu64", "-device", "intel-iommu,device-iotlb=on"},
		// The kernel must not distrust its timer on a busy host.
		console: "ttyS0", append: "intel_iommu=on iommu.strict=1 no_timer_check",
		// Without caching-mode QEMU does not see mappings. With ACPI hot plug the port's link would never be up.
		functionBoard: []string{
			"-machine", "q35", "-cpu", "qemu64", "-device", "intel-iommu,caching-mode=on,intremap=on",
			"-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off",
		},
		makeArch: "x86", gcc: "x86_64-linux-gnu-gcc", gccPackage: "gcc-x86-64-linux-gnu",
	},
}

// archOf returns an architecture by name. "" means arm64.
func archOf(name string) (*arch, error) {
	if name == "" {
		return &arches[0], nil
	}
	i := slices.IndexFunc(arches, func(a arch) bool { return a.name == name })
	if i < 0 {
		return nil, fmt.Errorf("vjetson: architecture %q, want %s or %s", name, arches[0].name, arches[1].name)
	}
	return &arches[i], nil
}

// compiler returns this host's C compiler for the architecture, and its Debian package.
func (a *arch) compiler() (program, pkg string) {
	if a.name == runtime.GOARCH {
		return "gcc", "gcc"
	}
	return a.gcc, a.gccPackage
}

// makeArguments returns the arguments for the kernel's build. The compiler is this host's, whatever the kernel's package
// names.
func (a *arch) makeArguments() []string {
	program, _ := a.compiler()
	return []string{"ARCH=" + a.makeArch, "CROSS_COMPILE=" + strings.TrimSuffix(program, "gcc"), "CC=" + program}
}
