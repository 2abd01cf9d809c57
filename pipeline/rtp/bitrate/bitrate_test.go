// SPDX-License-Identifier: Apache-2.0

package bitrate

import (
	"math"
	"strconv"
	"testing"
	"time"
)

const least, most = 500_000, 4_000_000

var start = time.Unix(1700000000, 0)

func at(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }

// TestLoss checks that the rate falls with losses, does not change while there are few, and rises slowly when there are
// none.
func TestLoss(t *testing.T) {
	for name, tt := range map[string]struct {
		lost map[float64]float64 // share by time in seconds
		when float64
		want float64
	}{
		"nothing heard":           {nil, 100, most},
		"a few are lost":          {map[float64]float64{1: 0.09}, 2, most},
		"many are lost":           {map[float64]float64{1: 0.4}, 1, most * 0.8},
		"again within the second": {map[float64]float64{1: 0.4, 1.5: 0.4}, 2, most * 0.8},
		"again after it":          {map[float64]float64{1: 0.4, 2: 0.4}, 2, most * 0.64},
		"it rests":                {map[float64]float64{1: 0.4, 6: 0.05}, 11.9, most * 0.8},
		"it rises":                {map[float64]float64{1: 0.4}, 9, most * 0.8 * 1.05 * 1.05},
		"no report is no loss":    {map[float64]float64{1: 0.4, 8: 0.02}, 9, most * 0.8 * 1.05 * 1.05},
		"as before":               {map[float64]float64{1: 0.4}, 60, most},
		"not below the least":     {map[float64]float64{1: 1, 2: 1, 3: 1, 4: 1, 5: 1}, 5, least},
		"nonsense":                {map[float64]float64{1: 7}, 1, most / 2},
	} {
		c := New(least, most)
		c.Bits(start)
		for s := 0.0; s <= tt.when; s += 0.5 { // in order
			if share, told := tt.lost[s]; told {
				c.Lost(share, at(s))
			}
		}
		if got := float64(c.Bits(at(tt.when))); math.Abs(got-tt.want) > 2 {
			t.Errorf("%s: %.0f, want %.0f", name, got, tt.want)
		}
	}
}

// sends reports the sending of that many bits per second, from one time until another, as ten pictures a second.
func sends(c *Control, bits int, from, until float64) {
	for n := range int((until - from) * 10) {
		c.Sent(bits/10, at(from+float64(n)/10))
	}
}

// TestEstimate checks that the lowest estimate of the receivers limits the rate, which then rises slowly.
func TestEstimate(t *testing.T) {
	c := New(least, most)
	c.Bits(start)
	sends(c, most, -3, 0)
	c.Sent(0, start)
	c.Estimate("a", 2e6, at(0))
	c.Estimate("b", 3e6, at(0))
	for i := range 10 * maxEstimates { // made-up receivers
		c.Estimate(strconv.Itoa(i), 3e6, at(0))
	}
	c.Estimate("a", 1e6, at(1))
	if got := c.Bits(at(1)); got != 1e6 || len(c.estimates) > maxEstimates {
		t.Errorf("%d, %d estimates", got, len(c.estimates))
	}
	c.Estimate("a", 1, at(2))
	if got := c.Bits(at(2)); got != least {
		t.Errorf("%d", got)
	}
	c.Estimate("a", 1e9, at(3))
	if got := c.Bits(at(4)); got <= least || got > least*12/10 {
		t.Errorf("after 2 s %d", got)
	}
	if got := c.Bits(at(100)); got != most || len(c.estimates) != 0 {
		t.Errorf("after all %d, %d estimates", got, len(c.estimates))
	}
}

// TestStillScene checks a receiver that gets little, because there is little to send, and estimates little more. It
// must not lower the rate, nor must a key frame in between. As soon as more is sent than it estimates, it must.
func TestStillScene(t *testing.T) {
	const still = 200_000
	c := New(least, most)
	for second := range 20 {
		from := float64(second)
		if second%2 == 0 {
			c.Sent(5*still, at(from)) // a key frame
		}
		sends(c, still, from, from+1)
		c.Estimate("a", still*1.5, at(from+0.95))
		if got := c.Bits(at(from + 0.95)); got != most {
			t.Fatalf("after %d s of a still scene %d", second, got)
		}
	}
	for second := 20; second < 24; second++ {
		from := float64(second)
		sends(c, most, from, from+1)
		c.Estimate("a", most/2, at(from+0.95))
	}
	if got := c.Bits(at(23.95)); got != most/2 {
		t.Errorf("in motion, with a network that takes half: %d", got)
	}
}

func TestLimits(t *testing.T) {
	c := New(most, least)
	c.Lost(1, start)
	if got := c.Bits(at(1)); got != least {
		t.Errorf("a least above the most: %d", got)
	}
}
