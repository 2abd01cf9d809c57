// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/tegracast/tegracast/fpga/model"
)

// A fault removes a resource of the service, and restores it, independently of other faults.
type fault struct {
	of   string // the resource; at most one of its faults is in force at a time
	name string
	take func() error
	give func() error
}

func (f *fault) String() string { return f.of + " " + f.name }

// again returns a fault that is renewed periodically while it is in force, because the service may have become another
// process.
func again(of, name string, every time.Duration, renew, give func() error, log *journal) fault {
	var stop chan struct{}
	var ended sync.WaitGroup
	return fault{of, name, func() error {
		stop = make(chan struct{})
		err := renew()
		ended.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(every):
				}
				if err := renew(); err != nil && !absent(err) {
					log.fail("%s %s: %v", of, name, err)
				}
			}
		})
		if absent(err) {
			err = nil
		}
		return err
	}, func() error {
		close(stop)
		ended.Wait()
		if err := give(); !absent(err) {
			return err
		}
		return nil
	}}
}

// absent reports whether an error means that the service does not run, or is starting or ending.
func absent(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE) || err != nil && err.Error() == "EOF"
}

// faults returns all faults from which the script chooses.
func (w *world) faults() (list []fault) {
	list = append(list, w.networkFaults()...)
	list = append(list, w.diskFaults()...)
	for _, r := range append(w.readers, w.nats, w.mqtt) {
		list = append(list, w.processFaults(r)...)
	}
	list = append(list, w.cardFaults()...)
	list = append(list, w.clockFaults()...)
	return append(list, w.limitFaults()...)
}

func (w *world) networkFaults() (list []fault) {
	for name, how := range map[string]answers{"silent": silent, "refusing": refusing, "wrong": wrong} {
		list = append(list, fault{
			"name server", name,
			func() error { w.names.is(how); return nil }, func() error { w.names.is(right); return nil },
		})
	}
	here := w.here.name
	return append(inOrder(list), fault{
		"link", "down",
		func() error { return ip("-n", here, "link", "set", "v", "down") },
		func() error { return ip("-n", here, "link", "set", "v", "up") },
	}, fault{
		"address", "gone",
		func() error { return ip("-n", here, "address", "delete", serviceAddress+"/24", "dev", "v") },
		func() error { return ip("-n", here, "address", "add", serviceAddress+"/24", "dev", "v") },
	})
}

func (w *world) diskFaults() []fault {
	d := w.disk
	return []fault{
		again("disk", "full", time.Second, d.fill, func() error { return os.Remove(d.ballast()) }, w.log),
		{"disk", "read-only", func() error { d.readOnly.Store(true); return nil }, func() error { d.readOnly.Store(false); return nil }},
		{"disk", "slow", func() error { d.holdUp.Store(int64(slowWrite)); return nil }, func() error { d.holdUp.Store(0); return nil }},
	}
}

// slowWrite is the duration of each operation of a slow disk.
const slowWrite = 2 * time.Second

// startWrites is the number of such operations during a start: the service counts the start, and the bus continues its
// numbers.
const startWrites = 6

func (w *world) processFaults(r *reader) []fault {
	return []fault{
		{r.name, "stopped", func() error { r.signal(syscall.SIGSTOP); return nil }, func() error { r.signal(syscall.SIGCONT); return nil }},
		{
			r.name, "killed", func() error { r.hold(true); r.signal(syscall.SIGKILL); return nil },
			func() error { r.hold(false); return nil },
		},
	}
}

// cards lists the seeds of the models, by source.
var cards = []struct {
	name string
	seed int
}{{"front", 1}, {"rear", 2}}

// strikes is the interval at which an FPGA's fault is injected while it is in force.
const strikes = 700 * time.Millisecond

func (w *world) cardFaults() (list []fault) {
	for _, card := range cards {
		of := "FPGA " + card.name
		ask := func(format string, values ...any) error {
			return w.service.control(card.seed, fmt.Sprintf(format, values...))
		}
		withdraw := func() error { return ask("withdraw") }
		reset := func() error { return errors.Join(withdraw(), ask("reset")) }
		none := func() error { return nil }
		for _, id := range model.FaultIDs() {
			inject := func() error { return ask("inject %v", id) }
			if id == model.F3 || id == model.F4 { // the engine hangs until the device is reset
				list = append(list, again(of, id.String(), strikes, inject, reset, w.log))
				continue
			}
			list = append(list, again(of, id.String(), strikes, inject, withdraw, w.log))
		}
		pins := 0
		list = append(list,
			again(of, "revokes pins", strikes, func() error { pins++; return ask("revoke %d", pins) }, none, w.log),
			again(of, "refuses pins", strikes, func() error { return ask("refuse 1 1") }, func() error { return ask("refuse 0 0") }, w.log),
			fault{of, "clock steps", func() error { return leaveOutAbsent(ask("step 3s")) }, func() error { return leaveOutAbsent(ask("step -3s")) }},
		)
	}
	return list
}

// clockFaults step the service's own wall clock (amd64 only). The machine's clock is unchanged.
func (w *world) clockFaults() (list []fault) {
	if runtime.GOARCH != "amd64" {
		return nil
	}
	set := func(ahead time.Duration) func() error {
		return func() error { return w.service.control(cards[0].seed, fmt.Sprintf("wall %v", ahead)) }
	}
	for _, ahead := range []time.Duration{time.Hour, -time.Minute} {
		list = append(list, again("wall clock", fmt.Sprintf("%v ahead", ahead), time.Second, set(ahead), set(0), w.log))
	}
	return list
}

func leaveOutAbsent(err error) error {
	if absent(err) {
		return nil
	}
	return err
}

// memoryLeft is the memory that limits leave in addition to the service's memory at the start. descriptorsLeft is the same
// for descriptors, relative to the current number.
// it has at the moment.
var memoryLeft = map[string]int64{"tight": 4 << 20, "too tight": 1 << 10}

const descriptorsLeft = 2

func (w *world) limitFaults() (list []fault) {
	s := w.service
	for name, left := range memoryLeft {
		if s.group == nil {
			break
		}
		list = append(list, again("memory", name, time.Second, func() error {
			w.limitedUntil.Store(math.MaxInt64)
			return s.group.limitTo(w.memory + left)
		}, func() error {
			w.limitedUntil.Store(time.Now().Add(time.Second).UnixNano())
			return s.group.limitTo(0)
		}, w.log))
	}
	list = inOrder(list)
	return append(list, fault{
		"descriptors", "limited", func() error {
			p := s.process()
			if p == nil {
				return nil
			}
			numbers, err := descriptors(p.cmd.Process.Pid)
			if err != nil || len(numbers) == 0 {
				return nil // the process has ended
			}
			return limitDescriptors(p.cmd.Process.Pid, uint64(len(numbers)+descriptorsLeft))
		}, func() error {
			if p := s.process(); p != nil {
				return limitDescriptors(p.cmd.Process.Pid, 0)
			}
			return nil
		},
	})
}
