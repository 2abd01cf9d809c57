// SPDX-License-Identifier: Apache-2.0

package flood

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Limit{Burst: 16, Every: 20 * time.Millisecond}
		began, n := time.Now(), 0
		for ; time.Since(began) < 10*time.Second; n++ { // as fast as allowed
			time.Sleep(l.Pause(time.Now()))
		}
		if n < 500 || n > 516 {
			t.Errorf("%d events in 10 s, want 50 a second and a burst", n)
		}
		time.Sleep(time.Second)
		for i := range 15 {
			if p := l.Pause(time.Now()); p != 0 {
				t.Errorf("event %d of a burst after a second without any: a pause of %v", i, p)
			}
		}
		for range 100 { // a slower one never pauses
			time.Sleep(25 * time.Millisecond)
			if p := l.Pause(time.Now()); p != 0 {
				t.Fatalf("40 events a second: a pause of %v", p)
			}
		}
	})
}

func TestAllows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Limit{Burst: 16, Every: 20 * time.Millisecond}
		passed := 0
		for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(100 * time.Microsecond) {
			if l.Allows(time.Now()) {
				passed++
			}
		}
		if passed < 500 || passed > 516 {
			t.Errorf("%d events passed in 10 s, want 50 a second and a burst", passed)
		}
		if time.Sleep(20 * time.Millisecond); !l.Allows(time.Now()) { // events that did not pass do not count
			t.Error("the next event does not pass")
		}
	})
}
