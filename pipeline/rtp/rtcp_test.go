// SPDX-License-Identifier: Apache-2.0

package rtp

import (
	"bytes"
	"testing"
	"time"

	"github.com/pion/rtcp"
)

func TestNTP(t *testing.T) {
	for _, tt := range []struct {
		at  time.Time
		ntp uint64
	}{
		{time.Unix(0, 0), 2208988800 << 32},
		{time.Date(1999, 12, 31, 23, 59, 59, 500_000_000, time.UTC), 0xbc17c1ff_80000000},
		{time.Unix(1, 250_000_000), 2208988801<<32 | 0x40000000},
	} {
		if got := NTP(tt.at); got != tt.ntp {
			t.Errorf("%v: %#x, want %#x", tt.at, got, tt.ntp)
		}
		if got := FromNTP(tt.ntp); !got.Equal(tt.at) {
			t.Errorf("%#x: %v, want %v", tt.ntp, got, tt.at)
		}
	}
}

func TestCompounds(t *testing.T) {
	c := NewCompounds(*testStart())
	now := time.Unix(1700000000, 500_000_000)
	tr := &Train{count: 77, info: trainInfo{timestamp: 5, sequence: 1 << 40, group: 1 << 50, captured: now.Add(-time.Second), pixels: 1234, crc: 0xdeadbeef}}
	b := c.Checksum(c.SenderReport(now, 1<<32+7, 900), tr.Checksum())
	if len(b)%4 != 0 {
		t.Fatalf("%d bytes", len(b))
	}
	all, err := rtcp.Unmarshal(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := rtcp.CompoundPacket(all[:2]).Validate(); err != nil {
		t.Errorf("RFC 3550 §6.1: %v", err)
	}
	sr := all[0].(*rtcp.SenderReport)
	stamp := MediaClock(now) + testStart().Timestamp
	if sr.SSRC != testStart().SSRC || sr.NTPTime != NTP(now) || sr.RTPTime != stamp || sr.PacketCount != 7 || sr.OctetCount != 900 {
		t.Errorf("sender report %v", sr)
	}
	app := all[2].(*rtcp.ApplicationDefined)
	got, err := ParseChecksum(app.SubType, app.Name, app.Data)
	want := Checksum{Timestamp: 5, CRC: 0xdeadbeef, Sequence: 1 << 40, Captured: got.Captured, Bytes: 1234, Packets: 77}
	if err != nil || got != want || !got.Captured.Equal(tr.info.captured) || app.SSRC != testStart().SSRC {
		t.Errorf("checksum %+v: %v", got, err)
	}
	tr.info.unverified = true
	all, err = rtcp.Unmarshal(c.Group(c.Damage(c.Checksum(c.SenderReport(now, 0, 0), tr.Checksum()), tr.Damage(33)), tr.Group()))
	if err != nil || len(all) != 5 {
		t.Fatalf("%v: %v", all, err)
	}
	unverified, damaged := all[2].(*rtcp.ApplicationDefined), all[3].(*rtcp.ApplicationDefined)
	got, err = ParseChecksum(unverified.SubType, unverified.Name, unverified.Data)
	if want.Unverified, want.Captured = true, got.Captured; err != nil || got != want {
		t.Errorf("checksum of an unverified frame %+v: %v", got, err)
	}
	damage, err := ParseDamage(damaged.SubType, damaged.Name, damaged.Data)
	if err != nil || damage != (Damage{Timestamp: 5, Packets: 33, Sequence: 1 << 40}) || damaged.SSRC != testStart().SSRC {
		t.Errorf("damage %+v: %v", damage, err)
	}
	grouped := all[4].(*rtcp.ApplicationDefined)
	group, err := ParseGroup(grouped.SubType, grouped.Name, grouped.Data)
	if err != nil || group != (Group{Timestamp: 5, Sequence: 1 << 40, Number: 1 << 50}) || grouped.SSRC != testStart().SSRC {
		t.Errorf("group %+v: %v", group, err)
	}
	if _, err := ParseGroup(subtypeDamage, damaged.Name, damaged.Data); err == nil {
		t.Error("a damage was taken for a group")
	}
	if _, err := ParseDamage(0, damaged.Name, damaged.Data); err == nil {
		t.Error("a checksum was taken for a damage")
	}
	all, err = rtcp.Unmarshal(c.Bye(c.SenderReport(now, 0, 0)))
	if err != nil || len(all) != 3 || all[2].(*rtcp.Goodbye).Sources[0] != testStart().SSRC {
		t.Errorf("bye %v: %v", all, err)
	}
	if n := testing.AllocsPerRun(20, func() { c.Checksum(c.SenderReport(now, 1, 2), tr.Checksum()) }); n != 0 {
		t.Errorf("%v allocations a report", n)
	}
	for _, bad := range []struct {
		name string
		data []byte
	}{{"TGCX", app.Data}, {"TGCR", app.Data[1:]}, {"TGCR", append(bytes.Clone(app.Data), 0)}} {
		if _, err := ParseChecksum(0, bad.name, bad.data); err == nil {
			t.Errorf("accepted %q of %d bytes", bad.name, len(bad.data))
		}
	}
}
