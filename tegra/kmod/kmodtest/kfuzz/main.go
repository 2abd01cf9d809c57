// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"fmt"
	"os"
	"time"
)

type settings struct {
	device   string
	function string // PCI address; "" leaves the function bound
	duration time.Duration
	inject   bool // make allocations of the calls fail
	seed     uint64
	worker   int  // number of a worker; -1 for the parent
	nobody   bool // the worker runs as the user nobody
}

func main() {
	var s settings
	flag.StringVar(&s.device, "device", "/dev/tegra_p2p0", "device file")
	flag.StringVar(&s.function, "function", "", "PCI address of the function to unbind and bind")
	flag.DurationVar(&s.duration, "duration", 30*time.Second, "how long")
	flag.Uint64Var(&s.seed, "seed", 1, "seed of what is done")
	flag.BoolVar(&s.inject, "inject", false, "let allocations of the calls fail; the kernel must have fault injection")
	flag.IntVar(&s.worker, "worker", -1, "number of a worker; the program gives it to itself")
	flag.BoolVar(&s.nobody, "nobody", false, "the worker has no rights")
	flag.Parse()
	run := runParent
	if s.worker >= 0 {
		run = runWorker
	}
	if err := run(s); err != nil {
		fmt.Println("kfuzz:", err)
		os.Exit(1)
	}
}
