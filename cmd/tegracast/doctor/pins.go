// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"io/fs"
	"os"
	"strings"

	"github.com/tegracast/tegracast/board"
	"github.com/tegracast/tegracast/tegra/uapi"
)

func deviceInfo(path string) (uapi.Info, error) {
	f, err := os.Open(path) // read-only: the last close of a writer resets the function
	if err != nil {
		return uapi.Info{}, err
	}
	defer f.Close()
	return uapi.GetInfo(int(f.Fd()))
}

// pinning reports how the module pins memory for each function bound to it. The check devices reports why a device does
// not answer.
func (p patient) pinning() []finding {
	var list []finding
	names, _ := fs.Glob(p.root, "dev/tegra_p2p*")
	for _, name := range names {
		if info, err := p.info("/" + name); err == nil {
			list = append(list, p.pins("/"+name, info.Flags))
		}
	}
	return list
}

func (p patient) pins(device string, flags uint32) finding {
	if flags&uapi.InfoNVP2P != 0 && p.library(cudaLibrary) == "" {
		return finding{
			"pinning", isWarning, device + " pins through nv-p2p, but without CUDA frames are in the program's own memory: " +
				"the kernel sometimes moves that memory, which stops the stream for a moment each time; pin_user_pages keeps it where it is",
			"modprobe -r tegra_p2p; modprobe tegra_p2p backend=gup",
		}
	}
	if flags&uapi.InfoNVP2P != 0 {
		return finding{"pinning", isGood, device + " pins through nv-p2p", ""}
	}
	gup := device + " pins through pin_user_pages; "
	if flags&uapi.InfoNVP2PForeign != 0 {
		return finding{"pinning", isNote, gup + "the nv-p2p that is loaded is the desktop driver's, which has other calls and is not used", ""}
	}
	why, remedy := "a provider of nv-p2p is loaded and not used: the module has backend=gup", "modprobe -r tegra_p2p; modprobe tegra_p2p backend=auto"
	switch {
	case flags&uapi.InfoNVP2PBuilt == 0:
		why, remedy = "nv-p2p is not compiled into the module", "apt-get install --reinstall ./tegracast-dkms_*_all.deb; modprobe -r tegra_p2p; modprobe tegra_p2p"
	case flags&uapi.InfoNVP2PPresent == 0:
		why, remedy = "nv-p2p is compiled in, and no provider was loaded before the module", "modprobe -r tegra_p2p; modprobe nvidia-p2p; modprobe tegra_p2p"
	}
	if p.nvp2p() {
		return finding{"pinning", isWarning, gup + why + ", and CUDA's memory of this Jetson Linux may need it", remedy}
	}
	return finding{"pinning", isGood, gup + why, ""}
}

// nvp2p reports whether CUDA of this board pins through nv-p2p, as that of Jetson Linux 35 and 36 (JetPack 5 and 6) does.
// CUDA 13 of Jetson Linux 38 and later, which includes every CUDA for Thor, uses pin_user_pages (docs/module.md).
func (p patient) nvp2p() bool {
	id := board.Identify(p.root)
	return id.Family != board.Other && id.Family != board.Thor && (strings.HasPrefix(id.L4T, "35.") || strings.HasPrefix(id.L4T, "36."))
}
