// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"

	"github.com/tegracast/tegracast/cudahost"
)

// gpu checks that doctor's user can open the files that CUDA opens, and that CUDA works. For a service, device rules apply
// to the files in addition (doctor --service).
func (p patient) gpu() finding {
	files := cudahost.DeviceFiles(p.root)
	if len(files) == 0 {
		return finding{"GPU", isNote, "no GPU driver has created device files: the CPU does the work", ""}
	}
	var paths []string
	shut := false
	for _, f := range files {
		paths, shut = append(paths, f.Path), shut || f.Err != nil
	}
	if shut {
		trouble, remedy := cudahost.Trouble(files)
		return finding{"GPU", isWarning, fmt.Sprintf("a GPU is present, but not used, because CUDA cannot open %s", trouble), remedy}
	}
	opened := "its device files can be opened: " + strings.Join(paths, " ")
	about, err := p.attempt("cuda")
	switch {
	case err != nil && p.library(cudaLibrary) == "" && strings.Contains(err.Error(), "driver is not installed"): // as the next finding says
		return finding{"GPU", isGood, opened, ""}
	case err != nil:
		return finding{"GPU", isWarning, "a GPU is present, but not used, because CUDA fails: " + err.Error() + "; " + opened, p.cudaRemedy()}
	}
	return finding{"GPU", isGood, opened + "; CUDA works: " + about, ""}
}

// cudaRemedy returns the command to run if CUDA fails though the device files can be opened. In a sandbox libcuda cannot
// run nvidia-modprobe, which makes files that are missing, such as /dev/nvidia-uvm.
func (p patient) cudaRemedy() string {
	if p.exists("usr/bin/nvidia-modprobe") && !p.exists("dev/nvidia-uvm") {
		return "nvidia-modprobe -c 0 -u; systemctl restart tegracast"
	}
	return "journalctl -k -g 'nvgpu|nvmap|NVRM'"
}
