// SPDX-License-Identifier: Apache-2.0

package model

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// forbidden lists descriptors that break a rule, and the Status bits that follow.
var forbidden = []struct {
	name    string
	rule    Rule
	channel uint32 // 0x0000 H2C, 0x1000 C2H
	stream  bool
	list    []desc // at the beginning of a page, or at the address at; each points to the next one
	at      uint64
	extra   uint32 // descriptors after the first, as written to the register
	control uint32
	status  uint32
}{
	{name: "another magic", rule: RuleMagic, list: []desc{{magic: 0xad4c, length: 64}}, status: bitMagic},
	{name: "reserved control bit 2", rule: RuleReserved, list: []desc{{control: 1 << 2, length: 64}}, status: bitMagic},
	{name: "reserved bit 15", rule: RuleReserved, list: []desc{{control: 1 << 15, length: 64}}, status: bitMagic},
	{name: "no byte", rule: RuleLength, list: []desc{{}}, status: bitInvalidLength},
	{name: "29 bits", rule: RuleLength, list: []desc{{length: 1<<28 + 64}}, status: bitInvalidLength},
	{name: "at 16 bytes", rule: RuleDescriptorAddress, at: 16, list: []desc{{length: 64}}, status: bitMagic},
	{name: "across 4 KiB", rule: RuleBlock, at: 4096 - 32, extra: 1, list: []desc{{length: 64}, {length: 64}}, status: bitMagic},
	{name: "a neighbour elsewhere", rule: RuleAdjacent, extra: 1, list: []desc{{length: 64, next: 1 << 20}, {length: 64}}, status: bitMagic},
	{name: "a beat", rule: RuleC2HLength, channel: 0x1000, stream: true, list: []desc{{length: BeatBytes}}, status: bitInvalidLength},
	{name: "a frame less a beat", rule: RuleC2HLength, channel: 0x1000, stream: true, list: []desc{{length: 4147200 - BeatBytes}}, status: bitInvalidLength},
	{name: "half a beat inside a packet", rule: RuleStreamWidth, stream: true, list: []desc{{length: 72}}, status: bitInvalidLength},
	{name: "fixed, host address", rule: RuleFixedAddress, list: []desc{{length: 64, src: 8}}, control: bitNonInc, status: bitAlign},
	{name: "fixed, card address", rule: RuleFixedAddress, list: []desc{{length: 64, dst: 8}}, control: bitNonInc, status: bitAlign},
	{name: "fixed, length", rule: RuleFixedAddress, list: []desc{{length: 72}}, control: bitNonInc, status: bitAlign},
}

// Every rule that a host can break with a descriptor is an error of the engine, and is reported by name.
// (TestCreditRegister covers the other one.)
func TestForbiddenDescriptors(t *testing.T) {
	tested := map[Rule]bool{RuleCredits: true}
	for _, c := range forbidden {
		tested[c.rule] = true
		t.Run(c.name, func(t *testing.T) {
			config := Loopback
			if c.stream {
				config = streams
			}
			h := newHost(t, config).startDevice()
			ring, data := h.alloc(8192)+c.at, h.alloc(4096)
			for i, x := range c.list {
				x.src += data
				if c.stream {
					x.dst += data
				}
				if x.next == 0 {
					x.next = ring + uint64(i+1)*descriptorBytes
				}
				h.writeMemory(ring+uint64(i)*descriptorBytes, x.encode())
			}
			h.first(0x4000+c.channel, ring, c.extra)
			h.w(c.channel+0x04, logAll|c.control|1)
			h.idle(c.channel)
			if got := h.r(c.channel + 0x40); got != c.status {
				t.Errorf("status %#x, want %#x", got, c.status)
			}
			h.breaks(c.rule)
		})
	}
	text, err := os.ReadFile("rules.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(Rule\w+) += Rule\("(.*)"\)`).FindAllStringSubmatch(string(text), -1) {
		if !tested[Rule(m[2])] {
			t.Errorf("%s is not tested", m[1])
		}
	}
}

// Without Config.Broken, a broken rule cannot go unnoticed.
func TestBrokenRulePanics(t *testing.T) {
	d, err := New(Loopback(&host{}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err, _ := recover().(error); !errors.Is(err, RuleCredits) {
			t.Errorf("recovered %v, want %v", err, RuleCredits)
		}
	}()
	dma := d.BARs()[1].Registers
	dma.Write32(0x6024, 1<<16)
	dma.Write32(0x508c, 1024)
}

// docs/reference/pg195.md must name each rule of the model, and only tests that exist.
func TestPageOfPG195(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/pg195.md")
	if err != nil {
		t.Fatal(err)
	}
	rules, err := os.ReadFile("rules.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(Rule\w+) += Rule\(`).FindAllStringSubmatch(string(rules), -1) {
		if !strings.Contains(string(page), "`"+m[1]+"`") {
			t.Errorf("the page does not name %s", m[1])
		}
	}
	for _, m := range regexp.MustCompile("`(Rule\\w+)`").FindAllStringSubmatch(string(page), -1) {
		if !strings.Contains(string(rules), m[1]) {
			t.Errorf("the model has no %s", m[1])
		}
	}
	dirs := map[string]string{
		"model": ".", "xdma": "../xdma", "fpga": "..", "rtl": "../rtl", "vfiouser": "../vfiouser", "capture": "../../capture", "tegracast": "../../cmd/tegracast",
	}
	names := regexp.MustCompile("`(\\w+)\\.((?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(string(page), -1)
	if len(names) < 20 {
		t.Errorf("%d tests are named", len(names))
	}
	for _, m := range names {
		if !hasTest(t, dirs[m[1]], m[2]) {
			t.Errorf("there is no %s.%s", m[1], m[2])
		}
	}
}

func hasTest(t *testing.T, dir, name string) bool {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || dir == "" {
		t.Fatalf("%q: %v", dir, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "func "+name+"(") {
			return true
		}
	}
	return false
}
