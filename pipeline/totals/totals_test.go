// SPDX-License-Identifier: Apache-2.0

package totals

import (
	"fmt"
	"testing"
)

func TestCount(t *testing.T) {
	var all Totals
	for i, step := range []struct {
		clients []Client
		a, b    uint64
	}{
		{[]Client{{"1", "a", []uint64{10}}, {"2", "a", []uint64{20}}, {"3", "b", []uint64{1}}}, 30, 1},
		{[]Client{{"1", "a", []uint64{15}}, {"3", "b", []uint64{2}}}, 35, 2}, // 2 has disconnected
		{[]Client{{"1", "a", []uint64{3}}, {"3", "b", []uint64{2}}}, 38, 2},  // another 1
		{nil, 38, 2}, // nobody is connected
		{[]Client{{"3", "a", []uint64{1}}, {"4", "b", []uint64{1}}}, 39, 3},        // 3 takes something else
		{[]Client{{"3", "a", []uint64{1}}, {"4", "b", []uint64{1}}}, 39, 3},        // nothing changes
		{[]Client{{"3", "b", []uint64{2}}, {"4", "b", []uint64{1}}}, 39, 5},        // 3 changes back
		{[]Client{{"5", "a", []uint64{1000}}, {"4", "b", []uint64{1}}}, 1039, 5},   // 3 has disconnected
		{[]Client{{"5", "a", []uint64{1000}}, {"4", "b", []uint64{10}}}, 1039, 14}, // 4 continues
	} {
		if got := all.Count(step.clients); got["a"][0] != step.a || got["b"][0] != step.b || len(got) != 2 {
			t.Errorf("step %d: %v, want a %d and b %d", i, got, step.a, step.b)
		}
	}
}

// TestManyClients checks that the number of groups stays small although clients connect from ever new ports and hosts.
func TestManyClients(t *testing.T) {
	var all Totals
	var got map[string][]uint64
	for i := range 1000 {
		address := fmt.Sprintf("10.0.%d.1:%d", i%100, 1024+i)
		got = all.Count([]Client{{address, Host(address), []uint64{1}}})
	}
	sum := uint64(0)
	for _, n := range got {
		sum += n[0]
	}
	if len(got) != most+1 || sum != 1000 {
		t.Errorf("%d groups, %d in all: %v", len(got), sum, got)
	}
}

func TestHost(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1:5004": "192.0.2.1", "[::ffff:192.0.2.1]:7": "192.0.2.1", "[2001:db8::1:2:3:4]:5": "2001:db8::/64",
		"[fe80::1%eth0]:5": "fe80::/64", "recorder:5004": "recorder", "not connected": Others,
	} {
		if got := Host(address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}
