// SPDX-License-Identifier: Apache-2.0

package gpio

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

var inside = flag.Bool("inside", false, "this is the virtual Jetson, whose gpiochip0 is a PL061")

// machine skips a test outside the virtual Jetson.
func machine(t *testing.T) {
	t.Helper()
	if !*inside {
		t.Skip("NEEDS the virtual Jetson: TestFull of board/vjetson runs it there")
	}
}

// witness returns what gpioinfo reports about a line.
func witness(t *testing.T, offset int) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "gpioinfo", "gpiochip0").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, fmt.Sprintf("line %3d:", offset)) {
			return strings.Join(strings.Fields(line), " ")
		}
	}
	t.Fatalf("gpioinfo has no line %d:\n%s", offset, out)
	return ""
}

func TestOutput(t *testing.T) {
	machine(t)
	before := witness(t, 5)
	o, err := OpenOutput(Line{Chip: "gpiochip0", Offset: 5}, "tegracast-led", 1)
	if err != nil {
		t.Fatal(err)
	}
	if w := witness(t, 5); !strings.Contains(w, `"tegracast-led" output active-high [used]`) {
		t.Error(w)
	}
	level := func(want string) {
		t.Helper()
		if b, err := os.ReadFile("/sys/kernel/debug/gpio"); err != nil || !strings.Contains(string(b), "tegracast-led") || !strings.Contains(string(b), "out "+want) {
			t.Errorf("%v, want out %s: %s", err, want, b)
		}
	}
	level("hi")
	if err := o.Set(0); err != nil {
		t.Error(err)
	}
	level("lo")
	if _, err := OpenOutput(Line{Chip: "gpiochip0", Offset: 5}, "other", 0); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "tegracast-led") {
		t.Errorf("a second one: %v", err)
	}
	if err := errors.Join(o.Close(), o.Close()); err != nil {
		t.Error(err)
	}
	if w := witness(t, 5); w != before {
		t.Errorf("left as %s, it was %s", w, before)
	}
	if out, err := exec.CommandContext(t.Context(), "gpioget", "gpiochip0", "5").CombinedOutput(); err != nil {
		t.Errorf("released, and others cannot have it: %v %s", err, out)
	}
}

func TestErrors(t *testing.T) {
	machine(t)
	for _, l := range []Line{{Name: "NO.SUCH"}, {Name: "NO.SUCH", Chip: "gpiochip0"}, {Chip: "gpiochip0", Offset: 8}, {Chip: "gpiochip9"}} {
		if o, err := OpenOutput(l, "test", 0); !errors.Is(err, ErrNoLine) {
			t.Errorf("%v: %v", l, err)
			if err == nil {
				o.Close()
			}
		}
	}
}

// TestCrash kills a process that has a line open: the kernel must release it.
func TestCrash(t *testing.T) {
	machine(t)
	if os.Getenv("GPIO_VICTIM") != "" {
		if _, err := OpenOutput(Line{Chip: "gpiochip0", Offset: 6, ActiveLow: true}, "victim", 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
	}
	c := exec.Command(os.Args[0], "-inside", "-test.run", "TestCrash")
	c.Env = append(os.Environ(), "GPIO_VICTIM=1")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for i := 0; !strings.Contains(witness(t, 6), `"victim" output active-low`); i++ {
		if i == 100 {
			t.Fatal("the victim does not take its line")
		}
		time.Sleep(50 * time.Millisecond)
	}
	_, _ = c.Process.Kill(), c.Wait()
	if w := witness(t, 6); !strings.Contains(w, "unused") {
		t.Error(w)
	}
}

// TestEdges waits for three pulses of the power button.
func TestEdges(t *testing.T) {
	machine(t)
	in, err := OpenInput(Line{Chip: "gpiochip0", Offset: 3}, "pps", Both)
	if err != nil {
		t.Fatal(err)
	}
	var last Edge
	for i := range 6 {
		select {
		case e := <-in.Edges():
			if e.Rising != (i%2 == 0) || e.Number != uint32(i+1) || !e.At.After(last.At) || time.Since(e.At) > 2*time.Second || time.Since(e.At) < 0 {
				t.Errorf("edge %d is %+v, after %+v", i, e, last)
			}
			if width := e.At.Sub(last.At); !e.Rising && (width < 20*time.Millisecond || width > time.Second) {
				t.Errorf("the pulse is %v wide, QEMU makes it 100 ms", width)
			}
			last = e
		case <-time.After(20 * time.Second):
			t.Fatalf("%d edges came", i)
		}
	}
	if in.Lost() != 0 {
		t.Errorf("%d edges lost", in.Lost())
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
}
