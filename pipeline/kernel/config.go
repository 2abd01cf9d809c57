// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tegracast/tegracast/pipeline"
)

// Errors that callers can distinguish.
var (
	ErrConfig = errors.New("impossible kernel")
	ErrFormat = errors.New("format does not fit the kernel")
	ErrClosed = errors.New("kernel is closed")
)

// Config is a user's description of a kernel.
type Config struct {
	Name       string // name of the stage
	File       string
	Entry      string               // name of an extern "C" __global__ function
	Pixels     pipeline.PixelFormat // format wanted from the stage in front of the kernel; 0: the kernel reads a source
	Turned     bool                 // with Pixels: the pictures have the height of the source's frames as width, and the width as height
	Results    bool                 // the kernel finds results; otherwise it makes frames
	Parameters map[string]float64   // values of the fields of struct parameters, by name
	Numbers    []string             // with Results: names of the fields of struct numbers
	Labels     []string             // with Results: the names of the labels 0, 1, …
	Bins       int                  // with Results: the number of bins
	State      int                  // bytes of device memory that persist from frame to frame
	TimeLimit  time.Duration        // maximum time for a frame; 0: DefaultTimeLimit
}

// DefaultTimeLimit is the default time limit for a frame.
const DefaultTimeLimit = time.Second

// Limits of a Config.
const (
	MaxNames     = 64 // of parameters, of numbers and of labels, each
	MaxBins      = 4096
	MinTimeLimit = 10 * time.Millisecond
	MaxTimeLimit = time.Minute
)

// identifier matches the permitted names. The prelude's own names start with a capital letter, and the compiler's with
// an underscore.
var identifier = regexp.MustCompile(`^[a-z][A-Za-z0-9_]{0,63}$`)

// reserved contains keywords of C++ that identifier matches.
const reserved = ` alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t char8_t class compl concept
 const consteval constexpr constinit const_cast co_await co_return co_yield continue decltype default delete do double
 dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable namespace new noexcept
 not not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires return short signed sizeof
 static static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename union
 unsigned using virtual void volatile wchar_t while xor xor_eq `

// CheckName returns an error that wraps ErrConfig unless the name can be that of a parameter or a number.
func CheckName(name string) error {
	if !identifier.MatchString(name) || slices.Contains(strings.Fields(reserved), name) {
		return fmt.Errorf("%w: %q: must be a C identifier that begins with a small letter", ErrConfig, name)
	}
	return nil
}

// entryPoint matches the permitted entry points. It is less strict than identifier, because users may follow other
// naming conventions.
var entryPoint = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

// Validate returns nil, or an error that wraps ErrConfig and states what is impossible.
func (c *Config) Validate() error {
	bad := func(format string, a ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrConfig}, a...)...)
	}
	switch {
	case c.File == "" || strings.ContainsAny(c.File, "\"\n\\"):
		return bad("file %q: name a .cu file", c.File)
	case !entryPoint.MatchString(c.Entry) || slices.Contains(strings.Fields(reserved), c.Entry):
		return bad("entry %q: must be the name of a function in C", c.Entry)
	case !c.Results && (c.Numbers != nil || c.Labels != nil || c.Bins != 0):
		return bad("numbers, labels and bins are only for kernels with results")
	case len(c.Parameters) > MaxNames || len(c.Numbers) > MaxNames || len(c.Labels) > MaxNames:
		return bad("there are more than %d parameters, numbers or labels", MaxNames)
	case c.Bins < 0 || c.Bins > MaxBins:
		return bad("bins %d: must be from 0 to %d", c.Bins, MaxBins)
	case c.State < 0:
		return bad("state %d: must not be negative", c.State)
	case c.TimeLimit != 0 && (c.TimeLimit < MinTimeLimit || c.TimeLimit > MaxTimeLimit):
		return bad("time limit %v: must be from %v to %v", c.TimeLimit, MinTimeLimit, MaxTimeLimit)
	}
	for i, name := range c.Numbers {
		if slices.Contains(c.Numbers[:i], name) {
			return bad("number %q is there twice", name)
		}
	}
	for _, name := range append(c.parameterNames(), c.Numbers...) {
		if err := CheckName(name); err != nil {
			return err
		}
	}
	for _, name := range c.parameterNames() {
		if v := c.Parameters[name]; math.IsNaN(v) || math.Abs(v) > math.MaxFloat32 {
			return bad("parameter %s is %v: must be a number that a float can hold", name, v)
		}
	}
	return nil
}
