// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"fmt"
	"testing"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/vfiouser/vfiousertest"
)

func BenchmarkRegister(b *testing.B) {
	m := plug(b, Config{Card: bigCard()})
	dma := vfiousertest.Window{C: m.client, Index: 1}
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			dma.Read32(0x2000)
		}
	})
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			dma.Write32(0x2010, 1)
		}
		dma.Read32(0x2000)
	})
}

func BenchmarkLoopback(b *testing.B) {
	for _, size := range []int{4096, 4 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			m := plug(b, Config{Card: bigCard()})
			m.vectors.Assign(m.client, 2)
			d := m.open()
			mem := m.alloc(size, 64<<10)
			tr, err := d.NewTransfer(fpga.H2C, 0, mem, 0)
			if err != nil {
				b.Fatal(err)
			}
			defer tr.Close()
			b.SetBytes(int64(size))
			for b.Loop() {
				if _, err := tr.Run(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
