// SPDX-License-Identifier: Apache-2.0

package cudahost

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"
)

// nvjpegNames are nvJPEG's library by its versioned names: an unrelated libnvjpeg.so comes with Jetson Linux.
var nvjpegNames = []string{"libnvjpeg.so.13", "libnvjpeg.so.12", "libnvjpeg.so.11"}

// ErrJPEG is wrapped by what nvJPEG refuses.
var ErrJPEG = errors.New("nvJPEG")

// nvjpegStatus are the names of nvjpegStatus_t from 1 on.
var nvjpegStatus = [...]string{
	"not initialized", "invalid parameter", "bad JPEG", "JPEG not supported", "allocator failure", "execution failed",
	"architecture mismatch", "internal error", "implementation not supported", "incomplete bitstream",
}

// A JPEGEncoder is nvJPEG's encoder: baseline, 4:2:0, with the standard Huffman tables. One goroutine uses it at a time.
type JPEGEncoder struct {
	stream *Stream
	create, destroy, stateCreate, stateDestroy, paramsCreate, paramsDestroy,
	quality, sampling, encode, retrieve uintptr

	handle, state, params uintptr
}

// NewJPEGEncoder opens nvJPEG for files of a quality of 1 to 100. Errors wrap ErrNoCUDA where it is missing.
func (g *Device) NewJPEGEncoder(quality int) (*JPEGEncoder, error) {
	return g.newJPEGEncoder(quality, nvjpegNames)
}

func (g *Device) newJPEGEncoder(quality int, names []string) (*JPEGEncoder, error) {
	library, err := openToolkit(names)
	if err != nil {
		return nil, fmt.Errorf("%w: nvJPEG is not installed (libnvjpeg of the CUDA toolkit or of JetPack): %w", ErrNoCUDA, err)
	}
	e := &JPEGEncoder{}
	for name, to := range map[string]*uintptr{
		"nvjpegCreateEx": &e.create, "nvjpegDestroy": &e.destroy, "nvjpegEncoderStateCreate": &e.stateCreate,
		"nvjpegEncoderStateDestroy": &e.stateDestroy, "nvjpegEncoderParamsCreate": &e.paramsCreate,
		"nvjpegEncoderParamsDestroy": &e.paramsDestroy, "nvjpegEncoderParamsSetQuality": &e.quality,
		"nvjpegEncoderParamsSetSamplingFactors": &e.sampling, "nvjpegEncodeYUV": &e.encode,
		"nvjpegEncodeRetrieveBitstream": &e.retrieve,
	} {
		if *to, err = purego.Dlsym(library, name); err != nil {
			return nil, errors.Join(fmt.Errorf("%w: libnvjpeg is too old, or another one: %w", ErrNoCUDA, err), purego.Dlclose(library))
		}
	}
	if e.stream, err = g.NewStream(); err != nil {
		return nil, err
	}
	if err := g.do(func(*driver) error { return e.open(quality) }); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

const chroma420 = 2 // NVJPEG_CSS_420

func (e *JPEGEncoder) open(quality int) error {
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

// A Picture420 is three planes that the device reaches, of bytes: luma, and Cb and Cr of half the width and height,
// rounded up.
type Picture420 struct {
	Planes        [3]uintptr
	Strides       [3]int
	Width, Height int
}

// nvjpegImage is nvjpegImage_t.
type nvjpegImage struct {
	channel [4]uintptr
	pitch   [4]uintptr
}

// Encode makes a JPEG file of the picture and appends it to dst, without writing beyond its capacity. It returns when
// that is done. Colours are BT.601's of full range, as JFIF has them.
func (e *JPEGEncoder) Encode(dst []byte, p Picture420) ([]byte, error) {
	image := &nvjpegImage{}
	for i := range p.Planes {
		image.channel[i], image.pitch[i] = p.Planes[i], uintptr(p.Strides[i])
	}
	var size uintptr
	err := e.stream.device.do(func(d *driver) error {
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

// Close gives everything back.
func (e *JPEGEncoder) Close() error {
	err := e.stream.device.do(func(*driver) error {
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
