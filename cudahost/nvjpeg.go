// SPDX-License-Identifier: Apache-2.0

package cudahost

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"
)

// nvjpegNames are the versioned names of the nvJPEG library. Jetson Linux contains an unrelated libnvjpeg.so.
var nvjpegNames = []string{"libnvjpeg.so.13", "libnvjpeg.so.12", "libnvjpeg.so.11"}

// ErrJPEG is wrapped by errors of nvJPEG.
var ErrJPEG = errors.New("nvJPEG")

// nvjpegStatus contains texts for the values of nvjpegStatus_t, from 1 on.
var nvjpegStatus = [...]string{
	"not initialized", "invalid parameter", "bad JPEG", "JPEG not supported", "allocator failure", "execution failed",
	"architecture mismatch", "internal error", "implementation not supported", "incomplete bitstream",
}

// An NVJPEG encodes with nvJPEG: baseline, 4:2:0, with the standard Huffman tables. Only one goroutine may use it
// at a time.
type NVJPEG struct {
	stream *Stream
	create, destroy, stateCreate, stateDestroy, paramsCreate, paramsDestroy,
	quality, sampling, encode, retrieve uintptr

	handle, state, params uintptr
}

// NewNVJPEG opens nvJPEG for files with a quality of 1 to 100. The caller must close it. The error wraps ErrNoCUDA if
// nvJPEG is missing or too old.
func (g *Device) NewNVJPEG(quality int) (*NVJPEG, error) {
	return g.newNVJPEG(quality, nvjpegNames)
}

func (g *Device) newNVJPEG(quality int, names []string) (*NVJPEG, error) {
	library, err := openToolkit(names)
	if err != nil {
		return nil, fmt.Errorf("%w: nvJPEG is not installed (libnvjpeg of the CUDA toolkit or of JetPack): %w", ErrNoCUDA, err)
	}
	e := &NVJPEG{}
	for name, to := range map[string]*uintptr{
		"nvjpegCreateEx": &e.create, "nvjpegDestroy": &e.destroy, "nvjpegEncoderStateCreate": &e.stateCreate,
		"nvjpegEncoderStateDestroy": &e.stateDestroy, "nvjpegEncoderParamsCreate": &e.paramsCreate,
		"nvjpegEncoderParamsDestroy": &e.paramsDestroy, "nvjpegEncoderParamsSetQuality": &e.quality,
		"nvjpegEncoderParamsSetSamplingFactors": &e.sampling, "nvjpegEncodeYUV": &e.encode,
		"nvjpegEncodeRetrieveBitstream": &e.retrieve,
	} {
		if *to, err = purego.Dlsym(library, name); err != nil {
			return nil, errors.Join(fmt.Errorf("%w: libnvjpeg is too old, or another library: %w", ErrNoCUDA, err), purego.Dlclose(library))
		}
	}
	if e.stream, err = g.NewStream(); err != nil {
		return nil, err
	}
	if err := g.withContext(func(*driver) error { return e.open(quality) }); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

const chroma420 = 2 // NVJPEG_CSS_420

func (e *NVJPEG) open(quality int) error {
	stream := e.stream.handle
	err := jpegError("nvjpegCreateEx", call(e.create, 0, 0, 0, 0, uintptr(unsafe.Pointer(&e.handle))))
	if err == nil {
		err = jpegError("nvjpegEncoderStateCreate", call(e.stateCreate, e.handle, uintptr(unsafe.Pointer(&e.state)), stream))
	}
	if err == nil {
		err = jpegError("nvjpegEncoderParamsCreate", call(e.paramsCreate, e.handle, uintptr(unsafe.Pointer(&e.params)), stream))
	}
	if err == nil {
		err = jpegError("nvjpegEncoderParamsSetQuality", call(e.quality, e.params, uintptr(quality), stream))
	}
	if err == nil {
		err = jpegError("nvjpegEncoderParamsSetSamplingFactors", call(e.sampling, e.params, chroma420, stream))
	}
	return err
}

func jpegError(call string, code int32) error {
	switch {
	case code == 0:
		return nil
	case int(code) <= len(nvjpegStatus):
		return fmt.Errorf("%w: %s: %s (%d)", ErrJPEG, call, nvjpegStatus[code-1], code)
	}
	return fmt.Errorf("%w: %s: status %d", ErrJPEG, call, code)
}

// A Picture420 consists of three planes of bytes that the device can access: luma, and Cb and Cr with half the width
// and height, rounded up.
type Picture420 struct {
	Planes        [3]uintptr // addresses of luma, Cb and Cr
	Strides       [3]int     // bytes from one line to the next
	Width, Height int        // of the luma plane
}

// nvjpegImage is nvjpegImage_t.
type nvjpegImage struct {
	channel [4]uintptr
	pitch   [4]uintptr
}

// Encode encodes the picture as a JPEG file, appends it to dst without exceeding its capacity, and returns when that is
// done. Colours must be BT.601 full range, as in JFIF. With an error, which wraps ErrJPEG if the capacity is too small,
// Encode returns dst with its old length.
func (e *NVJPEG) Encode(dst []byte, p Picture420) ([]byte, error) {
	image := &nvjpegImage{}
	for i := range p.Planes {
		image.channel[i], image.pitch[i] = p.Planes[i], uintptr(p.Strides[i])
	}
	var size uintptr
	err := e.stream.device.withContext(func(d *driver) error {
		if err := jpegError("nvjpegEncodeYUV", call(e.encode, e.handle, e.state, e.params, uintptr(unsafe.Pointer(image)),
			chroma420, uintptr(p.Width), uintptr(p.Height), e.stream.handle)); err != nil {
			return err
		}
		if err := jpegError("nvjpegEncodeRetrieveBitstream",
			call(e.retrieve, e.handle, e.state, 0, uintptr(unsafe.Pointer(&size)), e.stream.handle)); err != nil {
			return err
		}
		if size > uintptr(cap(dst)-len(dst)) {
			return fmt.Errorf("%w: the file has %d bytes, there is room for %d", ErrJPEG, size, cap(dst)-len(dst))
		}
		room := dst[len(dst) : len(dst)+int(size)]
		if err := jpegError("nvjpegEncodeRetrieveBitstream", call(e.retrieve, e.handle, e.state,
			uintptr(unsafe.Pointer(unsafe.SliceData(room))), uintptr(unsafe.Pointer(&size)), e.stream.handle)); err != nil {
			return err
		}
		return d.call(cuStreamSynchronize, e.stream.handle)
	})
	if err != nil {
		return dst, err
	}
	return dst[:len(dst)+int(size)], nil
}

// Close frees all resources.
func (e *NVJPEG) Close() error {
	err := e.stream.device.withContext(func(*driver) error {
		var errs []error
		for _, part := range []struct {
			name    string
			destroy uintptr
			handle  *uintptr
		}{
			{"nvjpegEncoderParamsDestroy", e.paramsDestroy, &e.params},
			{"nvjpegEncoderStateDestroy", e.stateDestroy, &e.state},
			{"nvjpegDestroy", e.destroy, &e.handle},
		} {
			if *part.handle != 0 {
				errs = append(errs, jpegError(part.name, call(part.destroy, *part.handle)))
				*part.handle = 0
			}
		}
		return errors.Join(errs...)
	})
	return errors.Join(err, e.stream.Close())
}
