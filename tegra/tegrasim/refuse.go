// SPDX-License-Identifier: Apache-2.0

package tegrasim

import (
	"math/rand/v2"

	"golang.org/x/sys/unix"

	"github.com/tegracast/tegracast/tegra/uapi"
)

// errnos are the errors that docs/module.md lists for the simulated calls, without EINTR, after which uapi repeats a
// call.
var errnos = map[uint][]unix.Errno{
	uapi.CallPin: {
		unix.EINVAL, unix.E2BIG, unix.EFAULT, unix.EMEDIUMTYPE, unix.ENOMEM, unix.ENOSPC, unix.EBUSY, unix.ESTALE, unix.EAGAIN, unix.EIO,
		unix.EOPNOTSUPP, unix.EPERM,
	},
	uapi.CallPut:     {unix.ENOENT, unix.EBUSY},
	uapi.CallAlloc:   {unix.E2BIG, unix.EINVAL, unix.ENOMEM, unix.ENOSPC, unix.ESTALE, unix.EPERM},
	uapi.CallControl: {unix.EAGAIN, unix.EIO, unix.EPERM},
}

// Errnos returns the errnos with which Refusals makes a call, uapi.CallPin, CallAlloc, CallPut or CallControl (RESUME),
// fail. It returns none for any other call. The slice must not be changed.
func Errnos(call uint) []unix.Errno { return errnos[call] }

// Refuse makes calls fail: f is called before each call, and returns the errno with which the call is to fail, or 0 if
// it is to be carried out. If f is nil, all calls are carried out. f is not called concurrently, and must not use the
// Sim.
func (s *Sim) Refuse(f func(call uint) unix.Errno) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = f
}

// Refusals returns a function for Refuse that makes a call fail with probability rate, with one of its Errnos. The same
// arguments and the same sequence of calls give the same errors.
func Refusals(seed uint64, rate float64) func(call uint) unix.Errno {
	rng := rand.New(rand.NewPCG(seed, 0x4ef05e))
	return func(call uint) unix.Errno {
		list := errnos[call]
		if len(list) == 0 || rng.Float64() >= rate {
			return 0
		}
		return list[rng.IntN(len(list))]
	}
}
