// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const workers = 2

// parent keeps the workers running and disturbs them.
type parent struct {
	settings
	*rand.Rand
	tally   *tally
	files   []*os.File // inherited by each worker as descriptors from 3 on
	ends    chan int   // receives the number of each worker that has ended
	running [workers]*os.Process
	started uint64
	ended   int
	unbinds int
}

func runParent(s settings) error {
	p := &parent{settings: s, Rand: rand.New(rand.NewPCG(s.seed, 0)), ends: make(chan int, workers)}
	if err := p.prepare(); err != nil {
		return err
	}
	begin := time.Now()
	for time.Since(begin) < s.duration {
		if err := p.restart(s.duration - time.Since(begin)); err != nil {
			return err
		}
		p.await(time.Duration(20+p.IntN(400)) * time.Millisecond)
		if w := p.running[p.IntN(workers)]; w != nil && p.IntN(6) == 0 {
			_ = w.Signal([]os.Signal{syscall.SIGKILL, syscall.SIGKILL, syscall.SIGTERM}[p.IntN(3)]) // it may just have ended
		}
		p.disturb()
	}
	for _, w := range p.running {
		if w != nil {
			_ = w.Kill()
		}
	}
	for p.running != [workers]*os.Process{} {
		p.forget(<-p.ends)
	}
	p.hugePages(0)
	report, n := p.tally.report(operations())
	fmt.Print(report)
	fmt.Printf("seed %d: %d operations, %.0f a second; %d processes ended, %d unbinds, %d allocations failed, %d faults of the programs, %d wrong answers\n",
		s.seed, n, float64(n)/time.Since(begin).Seconds(), p.ended, p.unbinds, p.tally.injected.Load(), p.tally.faults.Load(), p.tally.wrong.Load())
	if wrong := p.tally.wrong.Load(); wrong > 0 {
		return fmt.Errorf("%d wrong answers", wrong)
	}
	return nil
}

// prepare creates the files that the workers share, and permits all users to open the device.
func (p *parent) prepare() error {
	counters, err := unix.MemfdCreate("counters", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("counters: %w", err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket pair: %w", err)
	}
	driver, err := os.OpenFile("/dev/hostmem", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	p.files = []*os.File{os.NewFile(uintptr(counters), "counters"), os.NewFile(uintptr(pair[0]), "in"), os.NewFile(uintptr(pair[1]), "out"), driver}
	if p.tally, err = newTally(p.files[0]); err != nil {
		return err
	}
	p.hugePages(8)
	p.write("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "advise")
	return os.Chmod(p.device, 0o666)
}

// restart starts the workers that are not running.
func (p *parent) restart(left time.Duration) error {
	for i := range p.running {
		if p.running[i] != nil {
			continue
		}
		p.started++
		seed := p.seed<<20 + p.started
		c := exec.Command("/proc/self/exe", "-device", p.device, "-duration", left.String(), "-seed", strconv.FormatUint(seed, 10), "-worker", strconv.Itoa(i),
			"-inject="+strconv.FormatBool(p.inject))
		c.Env = []string{"GOTRACEBACK=all"}
		c.ExtraFiles, c.Stdout, c.Stderr = p.files, os.Stdout, os.Stdout
		if i%2 == 1 {
			c.Args = append(c.Args, "-nobody")
			c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		if err := c.Start(); err != nil {
			return fmt.Errorf("worker: %w", err)
		}
		p.running[i] = c.Process
		go func() {
			_ = c.Wait() // most are killed
			p.ends <- i
		}()
	}
	return nil
}

// await waits for d, and meanwhile removes the workers that end.
func (p *parent) await(d time.Duration) {
	for timer := time.After(d); ; {
		select {
		case i := <-p.ends:
			p.forget(i)
		case <-timer:
			return
		}
	}
}

func (p *parent) forget(i int) {
	p.running[i] = nil
	p.ended++
}

// disturb occasionally makes the kernel move, merge or drop memory, or unbinds the function.
func (p *parent) disturb() {
	switch p.IntN(24) {
	case 0, 1:
		p.write("/proc/sys/vm/compact_memory", "1")
	case 2, 3:
		p.write("/proc/sys/vm/drop_caches", "3")
	case 4:
		p.write("/sys/kernel/mm/ksm/run", "1")
	case 5:
		p.hugePages(p.IntN(9))
	case 6, 7, 8:
		p.unbind()
	}
}

// unbind unbinds the function from the driver and binds it again.
func (p *parent) unbind() {
	if p.function == "" {
		return
	}
	p.unbinds++
	p.write("/sys/bus/pci/drivers/tegra_p2p/unbind", p.function)
	p.await(time.Duration(p.IntN(100)) * time.Millisecond)
	p.write("/sys/bus/pci/drivers_probe", p.function)
	for range 500 {
		if os.Chmod(p.device, 0o666) == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println("kfuzz: the function did not come back")
	p.tally.wrong.Add(1)
}

func (p *parent) hugePages(n int) { p.write("/proc/sys/vm/nr_hugepages", strconv.Itoa(n)) }

// write writes to a file of the kernel. It prints refusals, because a run without the effect tests less.
func (p *parent) write(name, text string) {
	if err := os.WriteFile(filepath.Clean(name), []byte(text), 0); err != nil {
		fmt.Println("kfuzz:", err)
	}
}
