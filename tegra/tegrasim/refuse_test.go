// SPDX-License-Identifier: Apache-2.0

package tegrasim

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra"
	documented "github.com/tegracast/tegracast/tegra/kmod/kmodtest/errnos"
	"github.com/tegracast/tegracast/tegra/uapi"
)

// once makes the next call of a kind fail.
func once(s *Sim, call uint, errno unix.Errno) {
	s.Refuse(func(c uint) unix.Errno {
		if c != call {
			return 0
		}
		e := errno
		errno = 0
		return e
	})
}

// TestEveryCallCanBeRefused checks that each documented errno is returned as by a Device, and that the next call of
// that kind works.
func TestEveryCallCanBeRefused(t *testing.T) {
	_, addr := memory(t, 1)
	s := newSim(t, Config{})
	do := map[uint]func() error{
		uapi.CallPin: func() error {
			p, err := s.Pin(addr, tegra.PageSize, tegra.ToDevice, tegra.WriteBack)
			if p != nil {
				err = p.Unpin()
			}
			return err
		},
		uapi.CallPut: func() error { return pin(t, s, addr, 1, tegra.ToDevice).Unpin() },
		uapi.CallAlloc: func() error {
			c, err := s.AllocCoherent(1)
			if c != nil {
				err = c.Close()
			}
			return err
		},
		uapi.CallControl: func() error { generation, _ := s.Fenced(); return s.Resume(generation) },
	}
	for call, f := range do {
		if len(Errnos(call)) == 0 {
			t.Errorf("call %#x has no errnos", call)
		}
		for _, errno := range Errnos(call) {
			if !documented.Documented(int(call-uapi.CallGetInfo), errno) {
				t.Errorf("call %#x: %v is not documented", call, errno)
			}
			once(s, call, errno)
			err := f()
			var failed *uapi.Error
			if !errors.As(err, &failed) || *failed != (uapi.Error{Call: call, Errno: errno}) {
				t.Errorf("call %#x is to fail with %v: %v", call, errno, err)
			}
			if err := f(); err != nil {
				t.Errorf("call %#x after %v: %v", call, errno, err)
			}
		}
	}
	if n := len(s.table) + len(s.owners); n != 0 {
		t.Errorf("%d pins and mappings are left", n)
	}
}

func TestRefusalsAreOfTheirSeed(t *testing.T) {
	draw := func(seed uint64) (list []unix.Errno) {
		f := Refusals(seed, 0.5)
		for range 100 {
			list = append(list, f(uapi.CallPin))
		}
		return list
	}
	if a, b := fmt.Sprint(draw(1)), fmt.Sprint(draw(1)); a != b {
		t.Errorf("the same seed refuses %s and %s", a, b)
	}
	if fmt.Sprint(draw(1)) == fmt.Sprint(draw(2)) {
		t.Error("another seed refuses the same")
	}
}
