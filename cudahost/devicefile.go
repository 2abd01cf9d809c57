// SPDX-License-Identifier: Apache-2.0

package cudahost

import (
	"errors"
	"fmt"
	"io/fs"
	"os/user"
	"slices"
	"strings"
	"syscall"
)

// A DeviceFile is one of the device files that CUDA opens.
type DeviceFile struct {
	Path string // such as /dev/nvmap
	Err  error  // error on opening it, or nil
}

// gpuFiles are patterns of the files that a GPU's driver creates: nvgpu on Jetson, under its newer and older names
// (os/linux/ioctl.c), and nvidia. If one of them exists, there is a GPU.
var gpuFiles = []string{"dev/nvgpu/*/power", "dev/nvgpu/*/ctrl", "dev/nvhost-ctrl-gpu", "dev/nvhost-gpu", "dev/nvidiactl", "dev/nvidia[0-9]*"}

// besideGPU are patterns of the files of other drivers that CUDA also needs, where they exist.
var besideGPU = []string{"dev/nvmap", "dev/host1x-fence", "dev/nvhost-ctrl", "dev/nvidia-uvm", "dev/dri/renderD*"}

// DeviceFiles tries to open, for reading, the device files that CUDA needs for a GPU. root is the machine's file
// system. The list is empty if there is no GPU with a loaded driver.
func DeviceFiles(root fs.FS) []DeviceFile {
	files := tryFiles(root, gpuFiles)
	if len(files) == 0 {
		return nil
	}
	return append(files, tryFiles(root, besideGPU)...)
}

func tryFiles(root fs.FS, patterns []string) (files []DeviceFile) {
	for _, pattern := range patterns {
		names, _ := fs.Glob(root, pattern) // the patterns are valid
		for _, name := range names {
			f, err := root.Open(name)
			if err == nil {
				_ = f.Close() // only read from
			}
			if path := (*fs.PathError)(nil); errors.As(err, &path) {
				err = path.Err
			}
			files = append(files, DeviceFile{"/" + name, err})
		}
	}
	return files
}

// Trouble describes which device files cannot be opened and why, and returns the next step as a command for root's
// shell. If all of them can be opened, the problem is elsewhere, and the command is tegracast doctor.
func Trouble(files []DeviceFile) (trouble, remedy string) {
	var parts []string
	var errs []error
	for _, f := range files {
		if f.Err != nil {
			parts, errs = append(parts, fmt.Sprintf("%s: %v", f.Path, f.Err)), append(errs, f.Err)
		}
	}
	is := func(target error) bool {
		return slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, target) })
	}
	trouble = strings.Join(parts, "; ")
	switch {
	case len(errs) == 0:
		return "all can be opened", "tegracast doctor"
	case is(syscall.EPERM): // from the control group; a file's permissions cause EACCES
		return trouble + " (the device rules of a service let in what is there when it starts)", "systemctl restart tegracast"
	case is(syscall.EACCES):
		return trouble + " (on Jetson Linux the groups video and render may, from the next login or start on)", "usermod -aG video,render " + userName()
	}
	return trouble, "journalctl -k -g 'nvgpu|nvmap|NVRM'"
}

// userName returns the name of this process's user, or "tegracast" if it is unknown.
func userName() string {
	u, err := user.Current()
	if err != nil {
		return "tegracast"
	}
	return u.Username
}
