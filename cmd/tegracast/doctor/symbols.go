// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// dumpVersions returns the versions of symbols that a module's file wants, as modprobe prints them. It reads compressed
// files too. The output is empty for a module of a kernel without CONFIG_MODVERSIONS.
func dumpVersions(file string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "/sbin/modprobe", "--dump-modversions", file).Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) && len(failed.Stderr) > 0 {
		err = errors.New(strings.TrimSpace(string(failed.Stderr)))
	}
	return string(out), err
}

// symbolVersions returns the versions of each symbol in texts, which are files Module.symvers or the output of modprobe
// --dump-modversions. The lines of both begin with a version, a tab and a name.
func symbolVersions(texts ...string) map[string][]uint32 {
	list := map[string][]uint32{}
	for _, text := range texts {
		for line := range strings.Lines(text) {
			fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
			if len(fields) < 2 || fields[1] == "" {
				continue
			}
			if version, err := strconv.ParseUint(fields[0], 0, 32); err == nil {
				list[fields[1]] = append(list[fields[1]], uint32(version))
			}
		}
	}
	return list
}

// disagreement describes the first symbol that is given, but not in the version that is wanted, or returns "".
func disagreement(wanted, given map[string][]uint32) string {
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if versions := given[name]; len(versions) > 0 && !slices.Contains(versions, wanted[name][0]) {
			return fmt.Sprintf("it wants version %#08x of %s, and the headers give %#08x", wanted[name][0], name, versions[0])
		}
	}
	return ""
}

// refusal matches the kernel's message about a module that wants another version of a symbol.
var refusal = regexp.MustCompile(`tegra_p2p: disagrees about version of symbol (\S+)`)

// symbols compares the versions of symbols that the installed module wants with those of the headers. Jetson Linux 36.4.0
// to 36.4.7 have kernels of one release, 5.15.148-tegra, that differ in these versions.
func (p patient) symbols() finding {
	const what = "symbols"
	release := p.release()
	file, _ := p.moduleFor(release)
	if file == "" {
		return finding{what, isNote, "not checked: tegra_p2p is not installed for Linux " + release, ""}
	}
	text, err := p.dumpVersions("/" + file)
	wanted := symbolVersions(text)
	if err != nil {
		return finding{what, isNote, "not checked: modprobe --dump-modversions /" + file + ": " + err.Error(), ""}
	} else if len(wanted) == 0 {
		return finding{what, isNote, "/" + file + " has no versions of symbols: the kernel compares none", ""}
	}
	symvers := p.text("lib/modules/" + release + "/build/Module.symvers")
	installed := p.ofKernel(release)
	bad := finding{what, isMissing, "tegra_p2p was compiled for another kernel of the release " + release + ": ", p.compileAgain(release)}
	loaded, refused := p.exists("sys/module/tegra_p2p"), refusal.FindStringSubmatch(p.kernelLog())
	given := symbolVersions(symvers, p.providerVersions(release))
	switch why := disagreement(wanted, given); {
	case symvers != "" && disagreement(installed, given) != "":
		return finding{
			what, isWarning, "the headers do not belong to the installed kernel of the release " + release + ": its modules want version " +
				fmt.Sprintf("%#08x of module_layout, and the headers give %#08x", installed["module_layout"][0], given["module_layout"][0]),
			"apt-get install --reinstall " + p.headerPackages(),
		}
	case symvers != "" && why != "":
		bad.Detail += why
	case refused != nil && !loaded && disagreement(wanted, installed) == "" && len(installed) > 0:
		other := "the running kernel has another version of " + refused[1] + " than the installed one of the same release: restart the machine"
		return finding{what, isMissing, other, "reboot"}
	case refused != nil && !loaded && symvers == "":
		bad.Detail += "the running kernel has another version of " + refused[1]
		if bad.Command != "" {
			bad.Command = "apt-get install " + p.headerPackages() + " && " + bad.Command
		}
	case refused != nil && !loaded:
		return finding{
			what, isWarning, "the headers agree with tegra_p2p, which the kernel rejected because of its version of " + refused[1] +
				": if it is rejected again, the headers belong to another kernel", "modprobe tegra_p2p || apt-get install --reinstall " + p.headerPackages(),
		}
	case symvers == "":
		return finding{what, isNote, "not checked: there is no /lib/modules/" + release + "/build/Module.symvers", ""}
	default:
		return finding{what, isGood, "tegra_p2p wants the versions of symbols that the headers give", ""}
	}
	if loaded {
		bad.Grade, bad.Detail = isWarning, bad.Detail+". The loaded one stays until the next start"
	}
	if bad.Command == "" {
		bad.Detail += ". Compile it again; see docs/module.md"
	}
	return bad
}

// ofKernel returns the version of module_layout that a module of the installed kernel wants. It is empty if there is no
// such module.
func (p patient) ofKernel(release string) map[string][]uint32 {
	var file string
	_ = fs.WalkDir(p.root, "lib/modules/"+release+"/kernel", func(name string, _ fs.DirEntry, err error) error {
		if err == nil && strings.Contains(path.Base(name), ".ko") {
			file = name
			return fs.SkipAll
		}
		return err
	})
	if file == "" {
		return nil
	}
	text, _ := p.dumpVersions("/" + file)
	if layout := symbolVersions(text)["module_layout"]; layout != nil {
		return map[string][]uint32{"module_layout": layout}
	}
	return nil
}

// providerVersions returns the Module.symvers of nv-p2p's provider, where Kbuild looks for it (tegra/kmod/Kbuild).
func (p patient) providerVersions(release string) string {
	header := p.nvp2pHeader(release)
	return p.text(path.Dir(header)+"/Module.symvers") + "\n" + p.text(path.Join(header, "../../../Module.symvers"))
}

// compileAgain returns the command by which DKMS compiles the installed module again, or "" if DKMS does not know it. DKMS
// 2.8 of Ubuntu 20.04 and 22.04 ignores --force.
func (p patient) compileAgain(release string) string {
	version := p.dkmsVersion()
	if version == "" {
		return ""
	}
	return fmt.Sprintf("dkms remove tegra_p2p/%[1]s -k %[2]s; dkms install tegra_p2p/%[1]s -k %[2]s && modprobe tegra_p2p", version, release)
}
