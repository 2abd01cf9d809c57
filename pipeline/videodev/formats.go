// SPDX-License-Identifier: Apache-2.0

package videodev

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Limits of enumerations: a device that does not end one is cut short.
const (
	maxFormats   = 128
	maxSizes     = 128
	maxIntervals = 128
	maxControls  = 512
	maxMenu      = 256
)

// About contains a device's description of itself.
type About struct {
	Driver, Card, Bus string
	Can               uint32 // capabilities of the device file
}

// Ask returns what a device says about itself.
func Ask(d Caller) (About, error) {
	c := &Capability{}
	if err := d.Ioctl(QueryCapabilities, unsafe.Pointer(c)); err != nil {
		return About{}, fmt.Errorf("VIDIOC_QUERYCAP: %w", err)
	}
	return About{Driver: text(c.Driver[:]), Card: text(c.Card[:]), Bus: text(c.Bus[:]), Can: c.Can()}, nil
}

// Codes returns the four-character codes of the formats that a queue supports (vidioc-enum-fmt).
func Codes(d Caller, kind uint32) (list []uint32) {
	for i := range uint32(maxFormats) {
		f := &FormatDescription{Index: i, Type: kind}
		if d.Ioctl(ListFormats, unsafe.Pointer(f)) != nil {
			break
		}
		list = append(list, f.Pixels)
	}
	return list
}

// A Size is a frame size, or a range of sizes with steps. Discrete sizes have equal limits.
type Size struct {
	Width, Height         uint32
	MaxWidth, MaxHeight   uint32
	StepWidth, StepHeight uint32
}

func (s Size) String() string {
	if s.Width == s.MaxWidth && s.Height == s.MaxHeight {
		return fmt.Sprintf("%dx%d", s.Width, s.Height)
	}
	return fmt.Sprintf("%dx%d to %dx%d in steps of %dx%d", s.Width, s.Height, s.MaxWidth, s.MaxHeight, s.StepWidth, s.StepHeight)
}

// Sizes returns the frame sizes of a format, or nil if the device does not list them (vidioc-enum-framesizes).
func Sizes(d Caller, pixels uint32) (list []Size) {
	for i := range uint32(maxSizes) {
		e := &FrameSize{Index: i, Pixels: pixels}
		if d.Ioctl(ListSizes, unsafe.Pointer(e)) != nil {
			break
		}
		if e.Type == Discrete {
			list = append(list, Size{e.Size[0], e.Size[1], e.Size[0], e.Size[1], 0, 0})
			continue
		}
		s := Size{Width: e.Size[0], MaxWidth: e.Size[1], StepWidth: e.Size[2], Height: e.Size[3], MaxHeight: e.Size[4], StepHeight: e.Size[5]}
		return append(list, s) // the only one
	}
	return list
}

// Intervals returns the frame durations, in seconds, of a format and size, the limits if they are a range, or nil if the
// device does not list them (vidioc-enum-frameintervals).
func Intervals(d Caller, pixels, width, height uint32) (list []Fraction, isRange bool) {
	for i := range uint32(maxIntervals) {
		e := &FrameInterval{Index: i, Pixels: pixels, Width: width, Height: height}
		if d.Ioctl(ListIntervals, unsafe.Pointer(e)) != nil {
			break
		}
		if e.Type != Discrete {
			return []Fraction{e.Interval[0], e.Interval[1]}, true
		}
		list = append(list, e.Interval[0])
	}
	return list, false
}

// Offer describes a format that a device offers for a queue, for people: "RG10 1920x1080 at 30, 60; 640x480 at 90".
func Offer(d Caller, pixels uint32) string {
	var parts []string
	for _, s := range Sizes(d, pixels) {
		part := s.String()
		if list, isRange := Intervals(d, pixels, s.Width, s.Height); len(list) > 0 {
			part += " at " + rates(list, isRange)
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return strings.TrimSpace(Letters(pixels))
	}
	return strings.TrimSpace(Letters(pixels)) + " " + strings.Join(parts, "; ")
}

// rates returns frame durations as frames per second.
func rates(list []Fraction, isRange bool) string {
	var parts []string
	for _, f := range list {
		switch {
		case f.Numerator == 0:
			continue
		case f.Denominator%f.Numerator == 0:
			parts = append(parts, fmt.Sprint(f.Denominator/f.Numerator))
		default:
			parts = append(parts, fmt.Sprintf("%.4g", float64(f.Denominator)/float64(f.Numerator)))
		}
	}
	if isRange && len(parts) == 2 {
		return parts[1] + " to " + parts[0]
	}
	return strings.Join(parts, ", ")
}

// Layout is the agreed format of a queue: one element of Planes for each piece of memory.
type Layout struct {
	Width, Height, Pixels        uint32
	Field                        uint32
	Planes                       []PlaneFormat
	Colors, Matrix, Quantization uint32
}

// ErrAnswer means that a device has returned what is impossible.
var ErrAnswer = errors.New("impossible answer of the device")

// Current returns the current format of a queue.
func Current(d Caller, kind uint32) (Layout, error) {
	f := &Format{Type: kind}
	if err := d.Ioctl(GetFormat, unsafe.Pointer(f)); err != nil {
		return Layout{}, fmt.Errorf("VIDIOC_G_FMT: the driver does not tell the format that it has set, which is needed also if it is configured: %w", err)
	}
	return f.layout()
}

// Choose sets the format of a capture queue, and returns what the device has made of it. It lets the device choose
// strides and colours.
func Choose(d Caller, kind, pixels, width, height uint32) (Layout, error) {
	f := &Format{Type: kind}
	if kind == CaptureMulti {
		*f.Multi() = MultiFormat{Width: width, Height: height, Pixels: pixels, Field: FieldNone}
	} else {
		*f.Single() = SingleFormat{Width: width, Height: height, Pixels: pixels, Field: FieldNone, Private: HasPrivate}
	}
	if err := d.Ioctl(SetFormat, unsafe.Pointer(f)); err != nil {
		return Layout{}, fmt.Errorf("VIDIOC_S_FMT %s %dx%d: %w", Letters(pixels), width, height, err)
	}
	return f.layout()
}

// layout reads and checks a format.
func (f *Format) layout() (Layout, error) {
	var l Layout
	switch f.Type {
	case CaptureMulti, OutputMulti:
		m := f.Multi()
		if m.Count == 0 || m.Count > MaxPlanes {
			return l, fmt.Errorf("%w: %d planes", ErrAnswer, m.Count)
		}
		l = Layout{
			Width: m.Width, Height: m.Height, Pixels: m.Pixels, Field: m.Field, Planes: append([]PlaneFormat(nil), m.Planes[:m.Count]...),
			Colors: m.Colors, Matrix: uint32(m.Matrix), Quantization: uint32(m.Quantization),
		}
	default:
		s := f.Single()
		l = Layout{
			Width: s.Width, Height: s.Height, Pixels: s.Pixels, Field: s.Field, Planes: []PlaneFormat{{Size: s.Size, Stride: s.Stride}}, Colors: s.Colors,
		}
		if s.Private == HasPrivate {
			l.Matrix, l.Quantization = s.Matrix, s.Quantization
		}
	}
	const longest = 1 << 15 // lines and pixels
	for _, p := range l.Planes {
		if l.Width == 0 || l.Height == 0 || l.Width > longest || l.Height > longest || p.Size == 0 || p.Size > 1<<30 || p.Stride > 1<<24 {
			return l, fmt.Errorf("%w: %s %dx%d, lines of %d bytes, %d bytes", ErrAnswer, Letters(l.Pixels), l.Width, l.Height, p.Stride, p.Size)
		}
	}
	return l, nil
}

// ErrSignal means that an input, such as HDMI, has no signal, or one that it cannot take.
var ErrSignal = errors.New("no signal that the input takes")

// FollowSignal sets the timings of an input to those of its signal, and with them its format. An input without such timings,
// such as that of a webcam, stays as it is (vidioc-query-dv-timings).
func FollowSignal(d Caller) error {
	t := &Timings{}
	why := ""
	switch err := d.Ioctl(QueryTimings, unsafe.Pointer(t)); {
	case err == nil:
	case errors.Is(err, unix.ENOLINK):
		why = "none arrives: look at the cable and the sender"
	case errors.Is(err, unix.ENOLCK):
		why = "it is not stable"
	case errors.Is(err, unix.ERANGE):
		why = "it is beyond what the input takes: choose another mode of the sender"
	default:
		return nil
	}
	if why != "" {
		return fmt.Errorf("VIDIOC_QUERY_DV_TIMINGS: %w: %s", ErrSignal, why)
	}
	if err := d.Ioctl(SetTimings, unsafe.Pointer(t)); err != nil {
		return fmt.Errorf("VIDIOC_S_DV_TIMINGS %dx%d: %w", t.Width, t.Height, err)
	}
	return nil
}

// Rate returns the frame duration in seconds, or false if the device does not tell. can reports whether it can be set.
func Rate(d Caller, kind uint32) (f Fraction, can, known bool) {
	p := &StreamParameters{Type: kind}
	if d.Ioctl(GetParameters, unsafe.Pointer(p)) != nil || p.Numerator == 0 || p.Denominator == 0 {
		return f, false, false
	}
	return Fraction{p.Numerator, p.Denominator}, p.Capability&CanSetRate != 0, true
}

// SetRate sets the frame duration in seconds, and returns what the device has made of it.
func SetRate(d Caller, kind uint32, f Fraction) (Fraction, error) {
	p := &StreamParameters{Type: kind, Numerator: f.Numerator, Denominator: f.Denominator}
	if err := d.Ioctl(SetParameters, unsafe.Pointer(p)); err != nil {
		return f, fmt.Errorf("VIDIOC_S_PARM: %w", err)
	}
	if p.Numerator == 0 || p.Denominator == 0 {
		return f, fmt.Errorf("VIDIOC_S_PARM: %w: a frame takes %d/%d s", ErrAnswer, p.Numerator, p.Denominator)
	}
	return Fraction{p.Numerator, p.Denominator}, nil
}

// NextEvent returns the type of the next event, or 0 if there is none.
func NextEvent(d Caller) (uint32, error) {
	e := &Event{}
	err := d.Ioctl(DequeueEvent, unsafe.Pointer(e))
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EAGAIN) {
		return 0, nil
	}
	return e.Type, err
}
