// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/tegracast/tegracast/pipeline"
	"github.com/tegracast/tegracast/pipeline/distribution"
)

// TurboJPEGName is the soname of libjpeg-turbo's TurboJPEG, of which release 2.0 suffices.
const TurboJPEGName = "libturbojpeg.so.0"

// ErrNoTurboJPEG means that TurboJPEG could not be loaded; the error that wraps it gives the reason.
var ErrNoTurboJPEG = errors.New("no TurboJPEG")

// turboLibrary holds the functions of TurboJPEG (turbojpeg.h). It is never unloaded.
type turboLibrary struct {
	init, destroy, size, compress, trouble uintptr
	initDecoder, header, decompress        uintptr
}

var loadedTurbo struct {
	sync.Mutex
	library *turboLibrary
}

func loadTurbo() (*turboLibrary, error) {
	loadedTurbo.Lock()
	defer loadedTurbo.Unlock()
	if loadedTurbo.library == nil {
		l := &turboLibrary{}
		if err := symbols(TurboJPEGName, map[string]*uintptr{
			"tjInitCompress": &l.init, "tjDestroy": &l.destroy, "tjBufSize": &l.size, "tjCompressFromYUVPlanes": &l.compress,
			"tjGetErrorStr2": &l.trouble, "tjInitDecompress": &l.initDecoder, "tjDecompressHeader3": &l.header,
			"tjDecompressToYUVPlanes": &l.decompress,
		}); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrNoTurboJPEG, distribution.TurboJPEG.Advice(os.DirFS("/")), err)
		}
		loadedTurbo.library = l
	}
	return loadedTurbo.library, nil
}

// A TurboJPEG encodes JPEG files on the CPU with libjpeg-turbo. Only one goroutine may use it at a time.
type TurboJPEG struct {
	library *turboLibrary
	handle  uintptr
	quality int
}

// NewTurboJPEG creates an encoder with a quality of 1 to 100. The caller must close it. The error wraps ErrNoTurboJPEG
// if the library is missing.
func NewTurboJPEG(quality int) (*TurboJPEG, error) {
	l, err := loadTurbo()
	if err != nil {
		return nil, err
	}
	e := &TurboJPEG{library: l, quality: quality}
	if e.handle, _, _ = purego.SyscallN(l.init); e.handle == 0 {
		return nil, fmt.Errorf("tjInitCompress: %w", e.err())
	}
	return e, nil
}

// Constants of turbojpeg.h.
const (
	turbo420       = 2    // TJSAMP_420
	turboGrey      = 3    // TJSAMP_GRAY
	turboYCbCr     = 1    // TJCS_YCbCr
	turboGreyscale = 2    // TJCS_GRAY
	turboNoRealloc = 1024 // TJFLAG_NOREALLOC
)

// Encode appends a complete JPEG file of f, which must be I420, to dst: baseline, 4:2:0, with the standard Huffman
// tables. It never writes beyond dst's capacity, which must have room for the largest possible file (tjBufSize).
func (e *TurboJPEG) Encode(dst []byte, f *pipeline.Frame) ([]byte, error) {
	w, h, stride := f.Format.Width, f.Format.Height, f.Format.Stride
	luma := stride * h
	if len(f.Bytes) < luma+luma/2 {
		return dst, fmt.Errorf("%w: frame %d has %d bytes, its format %d", pipeline.ErrFormat, f.Sequence, len(f.Bytes), luma+luma/2)
	}
	room, _, _ := purego.SyscallN(e.library.size, uintptr(w), uintptr(h), turbo420)
	if free := cap(dst) - len(dst); int(room) < 0 || free < int(room) {
		return dst, fmt.Errorf("%w: a JPEG of %dx%d needs room for %d bytes, there is %d", io.ErrShortBuffer, w, h, int(room), free)
	}
	at := uintptr(unsafe.Pointer(&f.Bytes[0]))
	args := struct {
		planes  [3]uintptr
		out     uintptr
		size    uint64
		strides [3]int32
	}{
		planes:  [3]uintptr{at, at + uintptr(luma), at + uintptr(luma+luma/4)},
		out:     uintptr(unsafe.Pointer(unsafe.SliceData(dst[len(dst):cap(dst)]))),
		strides: [3]int32{int32(stride), int32(stride / 2), int32(stride / 2)},
	}
	result := e.compress(uintptr(unsafe.Pointer(&args.planes)), uintptr(w), uintptr(unsafe.Pointer(&args.strides)), uintptr(h),
		uintptr(unsafe.Pointer(&args.out)), uintptr(unsafe.Pointer(&args.size)))
	runtime.KeepAlive(f)
	runtime.KeepAlive(dst)
	if result != 0 {
		return dst, fmt.Errorf("frame %d: tjCompressFromYUVPlanes: %w", f.Sequence, e.err())
	}
	return dst[:len(dst)+int(args.size)], nil
}

// compress calls tjCompressFromYUVPlanes. Pointers may be converted to uintptr in the argument list.
//
//go:uintptrescapes
func (e *TurboJPEG) compress(planes, width, strides, height, out, size uintptr) int32 {
	r, _, _ := purego.SyscallN(e.library.compress, e.handle, planes, width, strides, height, turbo420, out, size, uintptr(e.quality), turboNoRealloc)
	return int32(r)
}

// err returns the library's error message for the last call.
func (e *TurboJPEG) err() error {
	text, _, _ := purego.SyscallN(e.library.trouble, e.handle)
	b := []byte{}
	for text != 0 {
		c := **(**byte)(unsafe.Pointer(&text))
		if c == 0 {
			break
		}
		b = append(b, c)
		text++
	}
	return errors.New(string(b))
}

// Close frees the encoder. It must be called only once.
func (e *TurboJPEG) Close() error {
	purego.SyscallN(e.library.destroy, e.handle)
	return nil
}
