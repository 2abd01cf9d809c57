// SPDX-License-Identifier: Apache-2.0

package codec

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/tegracast/tegracast/pipeline/distribution"
)

// Libraries are the sonames of openh264 that can be used, in the order in which they are looked for. The number in one
// grows with each change of the structs (abi.go).
var Libraries = []string{"libopenh264.so.8", "libopenh264.so.7", "libopenh264.so.6"}

// Errors that callers distinguish. They are wrapped with the details.
var (
	ErrNoLibrary = errors.New("H.264 cannot be encoded here")
	ErrFormat    = errors.New("pictures cannot be encoded as H.264")
	ErrEncode    = errors.New("openh264")
)

// library holds the functions of openh264. It is never unloaded.
type library struct {
	create, destroy uintptr
	measures        bool // its SLayerBSInfo is measuredLayerInfo
}

// loaded holds openh264 after it has been loaded. A failure is not remembered, because the library may be installed
// while the program runs.
var loaded struct {
	sync.Mutex
	library *library
}

func load() (*library, error) {
	loaded.Lock()
	defer loaded.Unlock()
	if loaded.library != nil {
		return loaded.library, nil
	}
	err := fmt.Errorf("%w: %s", ErrNoLibrary, distribution.OpenH264.Advice(os.DirFS("/")))
	for _, name := range Libraries {
		l, failed := open(name)
		if failed == nil {
			loaded.library = l
			return l, nil
		}
		err = fmt.Errorf("%w; %w", err, failed)
	}
	return nil, err
}

// open loads openh264 from a file, or by a soname, which must end with one of the numbers in Libraries.
func open(name string) (*library, error) {
	l := &library{measures: strings.HasSuffix(name, ".8")}
	return l, symbols(name, map[string]*uintptr{"WelsCreateSVCEncoder": &l.create, "WelsDestroySVCEncoder": &l.destroy})
}

// symbols loads a library and looks up functions in it.
func symbols(library string, functions map[string]*uintptr) error {
	handle, err := purego.Dlopen(library, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return err
	}
	for name, at := range functions {
		if *at, err = purego.Dlsym(handle, name); err != nil {
			return err
		}
	}
	return nil
}

// encoder is an ISVCEncoder: its first word points to the table of its methods.
type encoder struct{ table *[methodCount]uintptr }

// newEncoder creates an encoder, which is in C memory.
func (l *library) newEncoder() (*encoder, error) {
	var e *encoder
	if r, _, _ := purego.SyscallN(l.create, uintptr(unsafe.Pointer(&e))); r != 0 || e == nil {
		return nil, fmt.Errorf("%w: WelsCreateSVCEncoder: result %d", ErrEncode, int32(r))
	}
	return e, nil
}

// call calls a method with the arguments a and b; 0 stands for one that the method does not have. what describes the
// call in errors. Pointers may be converted to uintptr in the argument list.
//
//go:uintptrescapes
func (e *encoder) call(m method, what string, a, b uintptr) error {
	if r, _, _ := purego.SyscallN(e.table[m], uintptr(unsafe.Pointer(e)), a, b); int32(r) != 0 {
		return fmt.Errorf("%w: %s: result %d", ErrEncode, what, int32(r))
	}
	return nil
}
