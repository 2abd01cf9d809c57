// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"runtime"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/tegracast/tegracast/pipeline/mjpeg"
)

// ErrDecode means that a JPEG file could not be decoded; the error that wraps it gives the reason.
var ErrDecode = errors.New("JPEG cannot be decoded")

// An MJPEG decodes the JPEG files of a camera, with libjpeg-turbo or, if that is missing, with image/jpeg, which is
// several times slower and allocates. Only one goroutine may use it at a time.
type MJPEG struct {
	turbo *TurboJPEG // nil: image/jpeg
	file  []byte     // a file completed for image/jpeg
}

// NewMJPEG returns a decoder, which the caller must close. slow is the reason why it uses image/jpeg, or nil.
func NewMJPEG() (d *MJPEG, slow error) {
	l, err := loadTurbo()
	if err != nil {
		return &MJPEG{}, err
	}
	e := &TurboJPEG{library: l}
	if e.handle, _, _ = purego.SyscallN(l.initDecoder); e.handle == 0 {
		return &MJPEG{}, fmt.Errorf("tjInitDecompress: %w", e.err())
	}
	return &MJPEG{turbo: e}, nil
}

// Close frees the decoder. It must be called only once.
func (d *MJPEG) Close() error {
	if d.turbo == nil {
		return nil
	}
	return d.turbo.Close()
}

// Decode decodes a file into img, whose memory it uses if that has the file's subsampling and size, and otherwise
// replaces. The file must be baseline or progressive Y'CbCr or grey, of width x height pixels, which bounds the memory.
// Grey files have chroma of 128. Decode returns an error that wraps ErrDecode for anything else, also for a file that is
// cut or damaged; img may then have been written to in part.
func (d *MJPEG) Decode(img *image.YCbCr, file []byte, width, height int) error {
	if d.turbo == nil {
		return d.decodeSlowly(img, file, width, height)
	}
	if len(file) == 0 {
		return fmt.Errorf("%w: it is empty", ErrDecode)
	}
	kind, err := d.turbo.header(file, width, height)
	if err != nil {
		return err
	}
	ratio, grey := ratios[kind], kind == turboGrey
	if !grey && kind != turbo420 && ratio == image.YCbCrSubsampleRatio420 {
		return fmt.Errorf("%w: subsampling %d of libjpeg-turbo", ErrDecode, kind)
	}
	fit(img, ratio, width, height)
	if grey {
		for i := range img.Cb {
			img.Cb[i], img.Cr[i] = 128, 128
		}
	}
	return d.turbo.decode(img, file)
}

// fit makes img a picture of a size, with room for whole chroma samples also in luma, which libjpeg-turbo writes
// (tjPlaneWidth, tjPlaneHeight). It keeps memory that fits.
func fit(img *image.YCbCr, ratio image.YCbCrSubsampleRatio, width, height int) {
	across, down := 1, 1
	switch ratio {
	case image.YCbCrSubsampleRatio422:
		across = 2
	case image.YCbCrSubsampleRatio420:
		across, down = 2, 2
	case image.YCbCrSubsampleRatio440:
		down = 2
	case image.YCbCrSubsampleRatio411:
		across = 4
	}
	columns, lines := (width+across-1)/across, (height+down-1)/down
	fits := img.YStride >= columns*across && len(img.Y) >= img.YStride*lines*down
	fits = fits && img.CStride >= columns && min(len(img.Cb), len(img.Cr)) >= img.CStride*lines
	if rect := image.Rect(0, 0, width, height); !fits || img.Rect != rect || img.SubsampleRatio != ratio {
		*img = *image.NewYCbCr(image.Rect(0, 0, columns*across, lines*down), ratio)
		img.Rect = rect
	}
}

// ratios are the subsampling ratios by TJSAMP_*. Those that image does not have are 4:2:0.
var ratios = [...]image.YCbCrSubsampleRatio{
	image.YCbCrSubsampleRatio444, image.YCbCrSubsampleRatio422, image.YCbCrSubsampleRatio420, image.YCbCrSubsampleRatio420,
	image.YCbCrSubsampleRatio440, image.YCbCrSubsampleRatio411,
}

// header returns the subsampling of a file (TJSAMP_*), or an error if it has another size or no Y'CbCr.
func (e *TurboJPEG) header(file []byte, width, height int) (subsampling int32, err error) {
	var h struct{ width, height, subsampling, colours int32 }
	result := e.decodeHeader(uintptr(unsafe.Pointer(&file[0])), uintptr(len(file)), uintptr(unsafe.Pointer(&h.width)), uintptr(unsafe.Pointer(&h.height)),
		uintptr(unsafe.Pointer(&h.subsampling)), uintptr(unsafe.Pointer(&h.colours)))
	switch {
	case result != 0:
		return 0, fmt.Errorf("%w: %w", ErrDecode, e.err())
	case int(h.width) != width || int(h.height) != height:
		return 0, fmt.Errorf("%w: it has %dx%d pixels, not %dx%d", ErrDecode, h.width, h.height, width, height)
	case h.colours != turboYCbCr && h.colours != turboGreyscale || h.subsampling < 0 || int(h.subsampling) >= len(ratios):
		return 0, fmt.Errorf("%w: colour space %d of libjpeg-turbo, subsampling %d: must be Y'CbCr or grey", ErrDecode, h.colours, h.subsampling)
	}
	return h.subsampling, nil
}

// decode writes the planes of a file, whose header has been checked, to img.
func (e *TurboJPEG) decode(img *image.YCbCr, file []byte) error {
	args := struct {
		planes  [3]uintptr
		strides [3]int32
	}{
		planes:  [3]uintptr{uintptr(unsafe.Pointer(&img.Y[0])), uintptr(unsafe.Pointer(&img.Cb[0])), uintptr(unsafe.Pointer(&img.Cr[0]))},
		strides: [3]int32{int32(img.YStride), int32(img.CStride), int32(img.CStride)},
	}
	result := e.decodePlanes(uintptr(unsafe.Pointer(&file[0])), uintptr(len(file)), uintptr(unsafe.Pointer(&args.planes)),
		uintptr(unsafe.Pointer(&args.strides)))
	runtime.KeepAlive(img)
	if result == 0 {
		return nil
	}
	if err := e.err(); !strings.Contains(err.Error(), "extraneous bytes before marker") { // many cameras have them, and the picture is whole
		return fmt.Errorf("%w: %w", ErrDecode, err)
	}
	return nil
}

// decodeHeader calls tjDecompressHeader3. Pointers may be converted to uintptr in the argument list.
//
//go:uintptrescapes
func (e *TurboJPEG) decodeHeader(file, size, width, height, subsampling, colours uintptr) int32 {
	r, _, _ := purego.SyscallN(e.library.header, e.handle, file, size, width, height, subsampling, colours)
	return int32(r)
}

// decodePlanes calls tjDecompressToYUVPlanes. Pointers may be converted to uintptr in the argument list.
//
//go:uintptrescapes
func (e *TurboJPEG) decodePlanes(file, size, planes, strides uintptr) int32 {
	r, _, _ := purego.SyscallN(e.library.decompress, e.handle, file, size, planes, 0, strides, 0, 0)
	return int32(r)
}

// decodeSlowly is Decode with image/jpeg.
func (d *MJPEG) decodeSlowly(img *image.YCbCr, file []byte, width, height int) error {
	var err error
	if d.file, err = mjpeg.Append(d.file[:0], file); err != nil {
		return fmt.Errorf("%w: %w", ErrDecode, err)
	}
	c, err := jpeg.DecodeConfig(bytes.NewReader(d.file))
	if err == nil && (c.Width != width || c.Height != height) {
		return fmt.Errorf("%w: it has %dx%d pixels, not %dx%d", ErrDecode, c.Width, c.Height, width, height)
	}
	var decoded image.Image
	if err == nil {
		decoded, err = jpeg.Decode(bytes.NewReader(d.file))
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDecode, err)
	}
	switch picture := decoded.(type) {
	case *image.YCbCr:
		*img = *picture
	case *image.Gray:
		*img = *image.NewYCbCr(picture.Rect, image.YCbCrSubsampleRatio420)
		for y := range height {
			copy(img.Y[y*img.YStride:][:width], picture.Pix[y*picture.Stride:])
		}
		for i := range img.Cb {
			img.Cb[i], img.Cr[i] = 128, 128
		}
	default:
		return fmt.Errorf("%w: it is %T: must be Y'CbCr or grey", ErrDecode, picture)
	}
	return nil
}
