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

// Errors that callers tell apart.
var (
	ErrConfig = errors.New("impossible kernel")
	ErrFormat = errors.New("format does not fit the kernel")
	ErrClosed = errors.New("kernel is closed")
)

// Config is a kernel as its user describes it.
type Config struct {
	Name       string // of the stage
	File       string
	Entry      string               // an extern "C" __global__ function
	Pixels     pipeline.PixelFormat // what it wants of a stage in front of it; 0: it reads a source
	Results    bool                 // it finds results; else it makes frames
	Parameters map[string]float64   // the fields of struct parameters
	Numbers    []string             // of results: the fields of struct numbers
	Labels     []string             // of results: what the labels 0, 1, … are called
	Bins       int                  // of results: how many there are
	State      int                  // bytes of device memory that stay from frame to frame
	TimeLimit  time.Duration        // for a frame; 0: DefaultTimeLimit
}

// DefaultTimeLimit is how long a frame may take.
const DefaultTimeLimit = time.Second

// Bounds of a Config.
const (
	MaxNames     = 64 // parameters, numbers, labels
	MaxBins      = 4096
	MinTimeLimit = 10 * time.Millisecond
	MaxTimeLimit = time.Minute
)

// identifier is what names in C are here: the prelude's own begin with a capital, and the compiler's with an underscore.
var identifier = regexp.MustCompile(`^[a-z][A-Za-z0-9_]{0,63}$`)

// reserved are C++'s keywords, but for those that no identifier matches.
const reserved = ` alignas alignof and and_eq asm auto bitand bitor bool break case catch char class compl concept const constexpr
 const_cast continue decltype default delete do double dynamic_cast else enum explicit export extern false float for friend goto
 if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
 reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch template this thread_local
 throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq `

// CheckName says whether a name can be that of a parameter or a number. Errors wrap ErrConfig.
func CheckName(name string) error {
	if !identifier.MatchString(name) || slices.Contains(strings.Fields(reserved), name) {
		return fmt.Errorf("%w: %q: must be a name of C that begins with a small letter", ErrConfig, name)
	}
	return nil
}

// entryPoint is the rule for entry points, which users may have named by other habits.
var entryPoint = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

// Validate returns an error that wraps ErrConfig and says what cannot be.
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
		return bad("numbers, labels and bins are of kernels that find results")
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
