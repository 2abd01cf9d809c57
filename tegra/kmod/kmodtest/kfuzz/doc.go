// SPDX-License-Identifier: Apache-2.0

// Command kfuzz attacks tegra_p2p.ko at random. Processes with several threads, as root and as nobody, call the module,
// map what it returns, and change, share and free the memory that it has pinned. Some of them are killed. Meanwhile their
// parent makes the kernel compact, merge and drop memory, and unbinds the function from its driver.
//
// It runs in the virtual Jetson, as root. Package kmodtest builds it, and TestKfuzz of package guest runs it. It exits
// with status 1 if it fails, if a call of the module returned an error that is not in docs/module.md, or if the
// function did not come back after an unbind. The kernel reports faults itself.
package main
