// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"errors"
	"testing"

	"github.com/tegracast/tegracast/fpga"
	"github.com/tegracast/tegracast/fpga/vfiouser"
)

// TestARefusalThatNobodyExpectsFailsClose checks that Close reports an access of the card to memory that was taken from
// it. Accesses after the machine has disconnected are no fault.
func TestARefusalThatNobodyExpectsFailsClose(t *testing.T) {
	for name, c := range map[string]struct {
		do    func(m *machine)
		fails bool
	}{
		"freed memory": {func(m *machine) {
			m.vectors.Assign(m.client, 2)
			d, mem := m.open(), m.alloc(4096, 4096)
			m.ram.Free(m.client, mem)
			_ = transfer(m.t, d, fpga.H2C, mem)
		}, true},
		"no machine": {func(m *machine) {
			m.client.Close()
			for m.card.Books().Mapped > 0 || m.card.memory.Write(iovaBase, []byte{1}) == nil {
			}
		}, false},
	} {
		card, err := New(Config{Card: bigCard()})
		if err != nil {
			t.Fatal(err)
		}
		m := &machine{t: t, card: card, layout: []uint32{0, 1, 2}}
		m.connect()
		if name == "no machine" {
			m.alloc(4096, 4096)
		}
		c.do(m)
		if b := card.Books(); b.Refused == 0 {
			t.Errorf("%s: nothing was refused", name)
		}
		if err := card.Close(); (err != nil) != c.fails || err != nil && !errors.Is(err, vfiouser.ErrUnmapped) {
			t.Errorf("%s: close says %v", name, err)
		}
	}
}
