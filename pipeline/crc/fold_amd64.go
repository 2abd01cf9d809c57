// SPDX-License-Identifier: Apache-2.0

package crc

import "golang.org/x/sys/cpu"

var folds = cpu.X86.HasPCLMULQDQ

// fold replaces *to with a block that yields the same CRC as that block followed by the given number of blocks at b, of
// which there must be at least one.
//
//go:noescape
func fold(to *block, low, high uint64, b *byte, blocks int)
