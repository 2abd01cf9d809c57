// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/tegracast/tegracast/pipeline"
)

// An H264 encodes pictures of one format with openh264. It is not safe for concurrent use.
type H264 struct {
	library  *library
	encoder  *encoder
	format   pipeline.Format
	sps, pps []byte
	picture  sourcePicture
	bits     bitrateInfo
	out      bitstream
	taken    int64 // number of pictures encoded
}

// Limits of a stream's bit rate, in bits per second. The maximum is that of level 5.2 (H.264 table A-1).
const (
	MinBitrate = 10_000
	MaxBitrate = 240_000_000
)

const (
	maxRate   = 60         // frames per second, for openh264's rate control
	maxBlocks = 36864      // of 16 by 16 pixels, level 5.2 (H.264 table A-1)
	block     = 16         // pixels, minimum width and height
	sliced    = 1280 * 720 // pixels from which several threads encode a picture, in slices
	maxThread = 4
)

// CheckH264 returns an error that wraps ErrFormat if pictures of format f cannot be encoded.
func CheckH264(f pipeline.Format) error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("%w: %s %dx%d: %s", ErrFormat, f.Pixel, f.Width, f.Height, fmt.Sprintf(format, a...))
	}
	switch {
	case f.Pixel != pipeline.I420:
		return bad("pixels must be %s", pipeline.I420)
	case f.Memory != pipeline.MemoryHost:
		return bad("memory is %s, but the CPU encodes: use host memory", f.Memory)
	case f.Rate.Num == 0:
		return bad("rate control needs a frame rate: give the format one")
	case f.Width < block || f.Height < block:
		return bad("width and height must be at least %d", block)
	case (f.Width+block-1)/block*((f.Height+block-1)/block) > maxBlocks:
		return bad("level 5.2 allows at most %d blocks of 16x16 pixels: make the picture smaller", maxBlocks)
	}
	return nil
}

// DefaultBitrate returns a bit rate, in bits per second, at which pictures of format f, which must have a frame rate,
// look good: a tenth of a bit per pixel, but from MinBitrate to MaxBitrate.
func DefaultBitrate(f pipeline.Format) int {
	return int(min(max(float64(f.Width)*float64(f.Height)*float64(f.Rate.Num)/float64(f.Rate.Den)/10, MinBitrate), MaxBitrate))
}

// NewH264 opens an encoder for I420 pictures of format f. bitrate is in bits per second. The caller must close the
// encoder. Errors wrap ErrFormat, ErrNoLibrary or ErrEncode.
func NewH264(f pipeline.Format, bitrate int) (*H264, error) {
	if err := CheckH264(f); err != nil {
		return nil, err
	}
	l, err := load()
	if err != nil {
		return nil, err
	}
	return l.newH264(f, bitrate)
}

func (l *library) newH264(f pipeline.Format, bitrate int) (*H264, error) {
	e, err := l.newEncoder()
	if err != nil {
		return nil, err
	}
	h := &H264{library: l, encoder: e, format: f, out: bitstream{measured: l.measures}}
	if err := h.start(bitrate); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// start passes the parameters to the encoder and keeps the parameter sets that it generates.
func (h *H264) start(bitrate int) error {
	e, level, format := h.encoder, int32(traceErrors), int32(formatI420)
	if err := e.call(setOption, "trace level", optionTrace, uintptr(unsafe.Pointer(&level))); err != nil {
		return err
	}
	p := &parameters{}
	if err := e.call(getDefaultParams, "default parameters", uintptr(unsafe.Pointer(p)), 0); err != nil {
		return err
	}
	p.set(h.format, bitrate)
	if err := e.call(initializeExt, fmt.Sprintf("%dx%d at %d bit/s", h.format.Width, h.format.Height, bitrate), uintptr(unsafe.Pointer(p)), 0); err != nil {
		return err
	}
	if err := e.call(setOption, "pixels", optionFormat, uintptr(unsafe.Pointer(&format))); err != nil {
		return err
	}
	if err := e.call(encodeParameterSets, "parameter sets", uintptr(unsafe.Pointer(&h.out.info)), 0); err != nil {
		return err
	}
	return h.keepSets()
}

// rates returns the frame rate and the bit rate to configure in openh264, which limits the frame rate and derives bits
// per frame from both.
func rates(f pipeline.Format, bitrate int) (frames float64, bits int32) {
	rate := float64(f.Rate.Num) / float64(f.Rate.Den)
	frames = min(max(rate, 1), maxRate)
	return frames, int32(min(float64(bitrate)*frames/rate, math.MaxInt32/2))
}

// set overrides openh264's default parameters.
func (p *parameters) set(f pipeline.Format, bitrate int) {
	known, bits := rates(f, bitrate)
	p.usage, p.width, p.height, p.bitrate = usageCamera, int32(f.Width), int32(f.Height), bits
	p.rateControl, p.maxFrameRate, p.frameSkip = rateBits, float32(known), false
	p.temporalLayers, p.spatialLayers, p.references = 1, 1, 1
	p.intraPeriod, p.sceneChange = 0, false // key frames are requested explicitly
	p.parameterSets, p.longTerm, p.threads = constantID, false, 1
	p.background = false // background detection skips areas that change little: this costs 1 to 3 dB on the real capture at the same bit rate
	l := &p.layers[0]
	l.width, l.height, l.frameRate, l.bitrate = p.width, p.height, p.maxFrameRate, bits
	l.profile = profileBaseline
	if f.Width*f.Height >= sliced {
		p.threads = uint16(min(runtime.GOMAXPROCS(0), maxThread))
		l.slices.mode, l.slices.count = slicesFixed, uint32(p.threads)
		if p.threads == 2 {
			l.slices.count = 4 // when other work delays a thread, the other one encodes more of them
		}
	}
	l.videoSignal, l.videoFormat, l.colorsGiven = true, videoUndefined, true
	l.fullRange = f.Color == pipeline.BT601Full || f.Color == pipeline.BT709Full
	l.primaries, l.transfer, l.matrix = colorBT709, colorBT709, colorBT709
	if f.Color == pipeline.BT601Full || f.Color == pipeline.BT601Limited {
		l.matrix = colorSMPTE170M
	}
}

// keepSets copies the parameter sets from h.out to h.
func (h *H264) keepSets() error {
	const startCode, kinds, sps, pps = 4, 0x1f, 7, 8
	for i := range int(h.out.info.count) {
		data, lengths := h.out.units(i)
		for _, n := range lengths {
			unit := append([]byte(nil), data[startCode:n]...)
			switch unit[0] & kinds {
			case sps:
				h.sps = unit
			case pps:
				h.pps = unit
			}
			data = data[n:]
		}
	}
	if len(h.sps) < 4 || h.pps == nil {
		return fmt.Errorf("%w: no parameter sets", ErrEncode)
	}
	return nil
}

// ParameterSets returns the SPS and the PPS of the stream, without start codes. They must not be changed.
func (h *H264) ParameterSets() (sps, pps []byte) { return h.sps, h.pps }

// SetBitrate changes the bit rate, in bits per second, of the pictures that follow.
func (h *H264) SetBitrate(bitrate int) error {
	_, bits := rates(h.format, bitrate)
	h.bits = bitrateInfo{allLayers, bits}
	return h.encoder.call(setOption, fmt.Sprintf("%d bit/s", bitrate), optionBitrate, uintptr(unsafe.Pointer(&h.bits)))
}

// Encode appends f's picture to dst as an H.264 byte stream (Annex B). If key is true, it is a key frame, which begins
// with the parameter sets. Encode never writes beyond dst's capacity. Errors wrap ErrFormat if f does not fit the
// encoder's format, and otherwise ErrEncode; the result may then include a part of the picture.
func (h *H264) Encode(dst []byte, f *pipeline.Frame, key bool) ([]byte, error) {
	w, ht, stride := f.Format.Width, f.Format.Height, f.Format.Stride
	luma, chroma := stride*ht, stride*ht/4
	if f.Format.Pixel != h.format.Pixel || w != h.format.Width || ht != h.format.Height || len(f.Bytes) < luma+2*chroma {
		return dst, fmt.Errorf("%w: frame %d: %d bytes of %s", ErrFormat, f.Sequence, len(f.Bytes), f.Format)
	}
	if key {
		if err := h.encoder.call(forceIntraFrame, "key frame", 1, ^uintptr(0)); err != nil {
			return dst, err
		}
	}
	base := uintptr(unsafe.Pointer(&f.Bytes[0]))
	h.picture = sourcePicture{
		format: formatI420, width: int32(w), height: int32(ht), timestamp: h.taken * 1000 * int64(h.format.Rate.Den) / int64(h.format.Rate.Num),
		strides: [4]int32{int32(stride), int32(stride / 2), int32(stride / 2)},
		planes:  [4]uintptr{base, base + uintptr(luma), base + uintptr(luma+chroma)},
	}
	h.taken++
	err := h.encoder.call(encodeFrame, "encode", uintptr(unsafe.Pointer(&h.picture)), uintptr(unsafe.Pointer(&h.out.info)))
	runtime.KeepAlive(f)
	if err == nil && h.out.frameType() == frameSkipped {
		err = fmt.Errorf("%w: the picture is skipped", ErrEncode)
	}
	if err != nil {
		return dst, fmt.Errorf("frame %d: %w", f.Sequence, err)
	}
	for i := range int(h.out.info.count) {
		data, _ := h.out.units(i)
		if len(data) > cap(dst)-len(dst) {
			return dst, fmt.Errorf("%w: frame %d: more than %d bytes", ErrEncode, f.Sequence, cap(dst))
		}
		dst = append(dst, data...)
	}
	return dst, nil
}

// Close frees the encoder. Further calls do nothing.
func (h *H264) Close() error {
	if h.encoder == nil {
		return nil
	}
	err := h.encoder.call(uninitialize, "end", 0, 0)
	purego.SyscallN(h.library.destroy, uintptr(unsafe.Pointer(h.encoder)))
	h.encoder = nil
	return err
}
