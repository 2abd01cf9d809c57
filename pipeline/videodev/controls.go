// SPDX-License-Identifier: Apache-2.0

package videodev

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Numbers of controls of linux/v4l2-controls.h.
const (
	Gain             = 0x00980913 // V4L2_CID_GAIN
	Exposure         = 0x00980911 // V4L2_CID_EXPOSURE: of sensors, in lines
	AutoGain         = 0x00980912 // V4L2_CID_AUTOGAIN
	ExposureAuto     = 0x009a0901 // V4L2_CID_EXPOSURE_AUTO
	ExposureAbsolute = 0x009a0902 // V4L2_CID_EXPOSURE_ABSOLUTE, in units of 100 µs
	VerticalBlank    = 0x009e0901 // V4L2_CID_VBLANK, in lines
	HorizontalBlank  = 0x009e0902 // V4L2_CID_HBLANK, in pixels
	AnalogGain       = 0x009e0903 // V4L2_CID_ANALOGUE_GAIN
	PixelRate        = 0x009f0902 // V4L2_CID_PIXEL_RATE, in pixels a second

	ExposureManual = 1 // V4L2_EXPOSURE_MANUAL
)

// Numbers of controls of NVIDIA's tegra-v4l2-camera.h, which Jetson Linux has.
const (
	tegraBase           = 0x009a2000 // TEGRA_CAMERA_CID_BASE
	TegraMode           = tegraBase + 8
	TegraGain           = tegraBase + 9
	TegraExposure       = tegraBase + 10
	TegraRate           = tegraBase + 11
	TegraBypass         = tegraBase + 100 // 0: the pixels come to V4L2, and not to NVIDIA's ISP
	TegraOverride       = tegraBase + 101 // 1: the controls are used, and not the settings of the mode
	TegraProperties     = tegraBase + 107 // struct sensor_control_properties of each mode
	tegraPropertyWords  = 36              // of 32 bits, of a mode
	tegraGainFactor     = 0               // word with what the gain is multiplied by
	tegraRateFactor     = 1
	tegraExposureFactor = 16 // words 9 and 17 are padding
)

// Types of controls (enum v4l2_ctrl_type).
const (
	typeInteger     = 1
	typeBoolean     = 2
	typeMenu        = 3
	typeButton      = 4
	typeInteger64   = 5
	typeClass       = 6
	typeString      = 7
	typeBitmask     = 8
	typeIntegerMenu = 9
	typeU32         = 0x0102
)

// Flags of controls.
const (
	flagDisabled   = 0x0001
	flagReadOnly   = 0x0004
	flagInactive   = 0x0010
	flagWriteOnly  = 0x0040
	flagHasPayload = 0x0100
	flagLayout     = 0x0400     // V4L2_CTRL_FLAG_MODIFY_LAYOUT
	nextControl    = 0x80000000 // V4L2_CTRL_FLAG_NEXT_CTRL
	nextCompound   = 0x40000000
)

// A Setting describes a control of a device.
type Setting struct {
	ID                    uint32
	Name                  string
	Type                  uint32
	Min, Max, Def         int64
	Step                  uint64
	Flags                 uint32
	ElementSize, Elements uint32
	Items                 []MenuItem // of a menu; those that the device leaves out are missing
}

// A MenuItem is an item of a menu, with its name, or its value if the menu has integers.
type MenuItem struct {
	Index int64
	Name  string
}

// Writable reports whether the control can be set at all.
func (s *Setting) Writable() bool { return s.Flags&(flagReadOnly|flagDisabled) == 0 }

// Key returns the control's name as v4l2-ctl writes it: lower case, with underscores between letters and digits.
func (s *Setting) Key() string { return Key(s.Name) }

// Key returns a name of a control as v4l2-ctl writes it.
func Key(name string) string {
	var out strings.Builder
	gap := false
	for _, c := range strings.ToLower(name) {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			if gap && out.Len() > 0 {
				out.WriteByte('_')
			}
			gap = false
			out.WriteRune(c)
		} else {
			gap = true
		}
	}
	return out.String()
}

// Settings returns the controls of a device, without classes and disabled ones (vidioc-queryctrl).
func Settings(d Caller) (list []Setting) {
	for id := uint32(0); len(list) < maxControls; {
		q := &QueryControl{ID: id | nextControl | nextCompound}
		if d.Ioctl(DescribeControl, unsafe.Pointer(q)) != nil || q.ID <= id {
			break
		}
		id = q.ID
		if id&(nextControl|nextCompound) != 0 {
			break
		}
		if q.Type == typeClass || q.Flags&flagDisabled != 0 {
			continue
		}
		s := Setting{
			ID: id, Name: text(q.Name[:]), Type: q.Type, Min: q.Minimum, Max: q.Maximum, Def: q.Default, Step: q.Step,
			Flags: q.Flags, ElementSize: q.ElementSize, Elements: q.Elements,
		}
		if q.Type == typeMenu || q.Type == typeIntegerMenu {
			s.Items = items(d, &s)
		}
		list = append(list, s)
	}
	return list
}

func items(d Caller, s *Setting) (list []MenuItem) {
	for i := max(s.Min, 0); i <= min(s.Max, maxMenu); i++ {
		m := &QueryMenu{ID: s.ID, Index: uint32(i)}
		if d.Ioctl(QueryMenuItem, unsafe.Pointer(m)) != nil {
			continue
		}
		name := text(m.Name[:])
		if s.Type == typeIntegerMenu {
			name = strconv.FormatInt(int64(binary.NativeEndian.Uint64(m.Name[:])), 10)
		}
		list = append(list, MenuItem{i, name})
	}
	return list
}

// ErrControl means that a control does not exist, cannot be set, or does not take a value.
var ErrControl = errors.New("control")

// Parse returns the value that text means for a control: a number, the name of a menu's item, or true or false.
func (s *Setting) Parse(text string) (int64, error) {
	refuse := func(format string, a ...any) (int64, error) {
		return 0, fmt.Errorf("%w %s: %q: %s", ErrControl, s.Key(), text, fmt.Sprintf(format, a...))
	}
	if !s.Writable() {
		return refuse("it cannot be set")
	}
	switch s.Type {
	case typeInteger, typeInteger64, typeBoolean, typeMenu, typeIntegerMenu, typeBitmask, typeButton:
	default:
		return refuse("only numbers, menus, switches and buttons can be set")
	}
	if s.Elements > 1 {
		return refuse("it is an array of %d", s.Elements)
	}
	for _, m := range s.Items {
		if strings.EqualFold(m.Name, text) || Key(m.Name) == text {
			return m.Index, nil
		}
	}
	if s.Type == typeBoolean || s.Type == typeButton {
		if on, err := strconv.ParseBool(text); err == nil && on {
			return 1, nil
		} else if err == nil {
			return 0, nil
		}
		return refuse("write true or false")
	}
	v, err := strconv.ParseInt(text, 0, 64)
	switch {
	case err != nil && len(s.Items) > 0:
		return refuse("its items are %s", s.itemNames())
	case err != nil:
		return refuse("write a number from %d to %d", s.Min, s.Max)
	case s.Type != typeBitmask && (v < s.Min || v > s.Max):
		return refuse("it must be from %d to %d", s.Min, s.Max)
	}
	return v, nil
}

func (s *Setting) itemNames() string {
	var names []string
	for _, m := range s.Items {
		names = append(names, strconv.Quote(m.Name))
	}
	return strings.Join(names, ", ")
}

// Nearest returns the value nearest to v that the control takes.
func (s *Setting) Nearest(v float64) int64 {
	low, high := float64(s.Min), float64(s.Max)
	if math.IsNaN(v) || v < low {
		return s.Min
	}
	if v > high {
		return s.Max
	}
	step := float64(max(s.Step, 1))
	n := s.Min + int64(math.Round((v-low)/step)*step)
	return min(n, s.Max)
}

// Chooses reports whether the control switches something on and off, or chooses an item of a menu.
func (s *Setting) Chooses() bool {
	return s.Type == typeBoolean || s.Type == typeMenu || s.Type == typeIntegerMenu
}

// ChangesFormat reports whether the control may change the format, as one that flips the picture changes the mosaic.
func (s *Setting) ChangesFormat() bool { return s.Flags&flagLayout != 0 }

// A Value is a value of a control.
type Value struct {
	Setting *Setting
	Value   int64
}

// Get returns the value of a control that has one number.
func Get(d Caller, s *Setting) (int64, error) {
	c := &Control{ID: s.ID}
	var pins runtime.Pinner // what has an address for the kernel must not lie on a stack, which moves
	defer pins.Unpin()
	pins.Pin(c)
	l := &ControlList{Count: 1, List: uintptr(unsafe.Pointer(c))}
	err := d.Ioctl(GetControls, unsafe.Pointer(l))
	if err != nil {
		return 0, fmt.Errorf("%w %s: %w", ErrControl, s.Key(), err)
	}
	if s.Type == typeInteger64 {
		return int64(uint64(c.Value[0]) | uint64(c.Value[1])<<32), nil
	}
	return int64(int32(c.Value[0])), nil
}

// Set sets controls in one request, so that a driver that can apply them to the same frame does. The request fails as a
// whole, unless it says otherwise (vidioc-g-ext-ctrls).
func Set(d Caller, values ...Value) error {
	if len(values) == 0 {
		return nil
	}
	list := make([]Control, len(values))
	for i, v := range values {
		list[i] = Control{ID: v.Setting.ID, Value: [2]uint32{uint32(v.Value), uint32(uint64(v.Value) >> 32)}}
	}
	var pins runtime.Pinner
	defer pins.Unpin()
	pins.Pin(&list[0])
	l := &ControlList{Count: uint32(len(list)), List: uintptr(unsafe.Pointer(&list[0]))}
	err := d.Ioctl(SetControls, unsafe.Pointer(l))
	switch {
	case err == nil:
		return nil
	case int(l.Failed) < len(values):
		v := values[l.Failed]
		return fmt.Errorf("%w %s: %d: %w", ErrControl, v.Setting.Key(), v.Value, explain(v.Setting, err))
	}
	return fmt.Errorf("%w %s and others: %w", ErrControl, values[0].Setting.Key(), err)
}

// explain says what an error of a control means.
func explain(s *Setting, err error) error {
	if errors.Is(err, unix.EBUSY) && s.Flags&flagInactive == 0 {
		return fmt.Errorf("another process owns it, or it cannot change while the camera streams: %w", err)
	}
	return err
}

// Array returns the elements of a control that is an array of 32-bit numbers. There are at most 4,096.
func Array(d Caller, s *Setting) ([]uint32, error) {
	if s.Type != typeU32 || s.ElementSize != 4 || s.Elements == 0 || s.Elements > 4096 {
		return nil, fmt.Errorf("%w %s: it is no array of numbers", ErrControl, s.Key())
	}
	list := make([]uint32, s.Elements)
	var pins runtime.Pinner
	defer pins.Unpin()
	pins.Pin(&list[0])
	at := uint64(uintptr(unsafe.Pointer(&list[0])))
	c := &Control{ID: s.ID, Size: 4 * s.Elements, Value: [2]uint32{uint32(at), uint32(at >> 32)}}
	pins.Pin(c)
	l := &ControlList{Count: 1, List: uintptr(unsafe.Pointer(c))}
	err := d.Ioctl(GetControls, unsafe.Pointer(l))
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w", ErrControl, s.Key(), err)
	}
	return list, nil
}

// Factors holds the units of NVIDIA's controls: by these numbers gain, frames a second and seconds are multiplied.
type Factors struct{ Gain, Rate, Exposure float64 }

// TegraFactors returns the factors of a mode of a sensor, as its device tree gives them, from the array of control
// TegraProperties; or those that NVIDIA's device trees have if the array does not say.
func TegraFactors(properties []uint32, mode int) Factors {
	f := Factors{Gain: 16, Rate: 1e6, Exposure: 1e6}
	if mode < 0 || mode >= len(properties)/tegraPropertyWords {
		return f
	}
	words := properties[mode*tegraPropertyWords:]
	for at, to := range map[int]*float64{tegraGainFactor: &f.Gain, tegraRateFactor: &f.Rate, tegraExposureFactor: &f.Exposure} {
		if words[at] != 0 {
			*to = float64(words[at])
		}
	}
	return f
}
