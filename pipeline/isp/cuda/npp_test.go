// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"fmt"
	"runtime"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/tegracast/tegracast/cudahost"
)

// streamContext is NppStreamContext of CUDA 11 to 13 (nppdefs.h): 48 bytes, passed by value.
type streamContext struct {
	stream                                             uintptr
	device, processors, threadsProcessor, threadsBlock int32
	sharedMemory                                       uintptr
	major, minor                                       int32
	flags, reserved                                    uint32
}

const (
	nppBayerRGGB     = 1 // NppiBayerGridPosition
	nppUndefined     = 0 // NppiInterpolationMode: the only one that CFAToRGB accepts
	nppHintNone      = 0 // NppHintAlgorithm
	streamNoBlocking = 1
)

// npp is NVIDIA's 2D image library, used for comparison: nppicc demosaics, nppidei converts 16 bits to 8.
type npp struct {
	context                streamContext
	color16, color8, scale uintptr // 0 if not available
	from                   string
}

// nppFolders lists where the toolkit may be; "" leaves it to the linker.
var nppFolders = []string{
	"", "/usr/local/cuda/lib64/", "/usr/local/cuda/targets/x86_64-linux/lib/",
	"/usr/local/cuda/targets/sbsa-linux/lib/", "/usr/local/cuda/targets/aarch64-linux/lib/",
}

// openNPP returns nil without the library.
func openNPP(t testing.TB, d *bareDriver, s *cudahost.Stream) *npp {
	t.Helper()
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		return nil
	}
	for _, folder := range nppFolders {
		for _, version := range []string{"13", "12", "11"} {
			open := func(name string) uintptr {
				h, _ := purego.Dlopen(folder+name+".so."+version, purego.RTLD_NOW|purego.RTLD_GLOBAL)
				return h
			}
			open("libnppc") // the others need it, and may not find it on their own
			color := open("libnppicc")
			if color == 0 {
				continue
			}
			n := &npp{from: folder + "libnppicc.so." + version, context: d.streamContext(s)}
			n.color16, _ = purego.Dlsym(color, "nppiCFAToRGB_16u_C1C3R_Ctx")
			n.color8, _ = purego.Dlsym(color, "nppiCFAToRGB_8u_C1C3R_Ctx")
			if exchange := open("libnppidei"); exchange != 0 {
				n.scale, _ = purego.Dlsym(exchange, "nppiScale_16u8u_C3R_Ctx")
			}
			return n
		}
	}
	return nil
}

func (d *bareDriver) streamContext(s *cudahost.Stream) streamContext {
	return streamContext{
		stream: s.Handle(), processors: d.attribute(16), threadsProcessor: d.attribute(39), threadsBlock: d.attribute(1),
		sharedMemory: uintptr(d.attribute(8)), major: d.attribute(75), minor: d.attribute(76), flags: streamNoBlocking,
	}
}

// words appends the context as a last argument by value: on the stack (System V ABI, class MEMORY), or as a pointer to
// a copy (AAPCS64, above 16 bytes). The arguments before it fill the argument registers.
func (n *npp) words(args ...uintptr) []uintptr {
	if runtime.GOARCH == "arm64" {
		return append(args, uintptr(unsafe.Pointer(&n.context)))
	}
	return append(args, (*[unsafe.Sizeof(streamContext{}) / 8]uintptr)(unsafe.Pointer(&n.context))[:]...)
}

func nppCall(name string, f uintptr, args []uintptr) error {
	if r, _, _ := purego.SyscallN(f, args...); int32(r) != 0 {
		return fmt.Errorf("%s: NppStatus %d", name, int32(r))
	}
	return nil
}

// pair packs two ints into a word, as for NppiSize and each half of NppiRect.
func pair(a, b int) uintptr { return uintptr(uint32(a)) | uintptr(uint32(b))<<32 }

// color makes R, G, B from a mosaic, both with bytes bytes per sample. It needs 15 words, the maximum for a call.
func (n *npp) color(bytes int, in, out uintptr, w, h int) error {
	f := n.color16
	if bytes == 1 {
		f = n.color8
	}
	return nppCall("nppiCFAToRGB", f, n.words(in, uintptr(w*bytes), pair(w, h), pair(0, 0), pair(w, h), out, uintptr(3*w*bytes),
		nppBayerRGGB, nppUndefined))
}

// toBytes converts R, G, B from 16 bits to 8.
func (n *npp) toBytes(in, out uintptr, w, h int) error {
	return nppCall("nppiScale", n.scale, n.words(in, uintptr(6*w), out, uintptr(3*w), pair(w, h), nppHintNone))
}
