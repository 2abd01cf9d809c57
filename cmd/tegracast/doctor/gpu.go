// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"

	"github.com/tegracast/tegracast/cudahost"
)

// gpu checks that doctor's user can open the files that CUDA opens. For a service, device rules apply in addition.
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
	if !shut {
		return finding{"GPU", isGood, "its device files can be opened: " + strings.Join(paths, " "), ""}
	}
	trouble, remedy := cudahost.Trouble(files)
	return finding{"GPU", isWarning, fmt.Sprintf("a GPU is present, but not used, because CUDA cannot open %s", trouble), remedy}
}
