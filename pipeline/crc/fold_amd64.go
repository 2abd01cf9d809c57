// SPDX-License-Identifier: Apache-2.0

package crc

import "golang.org/x/sys/cpu"

var folds = cpu.X86.HasPCLMULQDQ

// fold replaces a block by one that, in front of the end of a message, has the same CRC as the block and the blocks behind it, of which
// there is at least one.
//
//go:noescape
func fold(to *block, low, high uint64, b *byte, blocks int)
