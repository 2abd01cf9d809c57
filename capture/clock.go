package capture

import (
	"time"

	"tegracast/fpga"
)

// clock maps the FPGA's timestamp counter to this machine's time by one paired reading at start.
type clock struct {
	host time.Time
	fpga uint64 // ns
}

// pair reads both clocks and keeps the pair with the shortest reading, which is the least uncertain.
func (c *clock) pair(camera *fpga.Camera) {
	best := time.Duration(1<<63 - 1)
	for range 8 {
		before := time.Now()
		ticks := camera.Timestamp()
		if took := time.Since(before); took < best {
			best = took
			c.host, c.fpga = before.Add(took/2), ticks
		}
	}
}

func (c *clock) at(ticks uint64) time.Time { return c.host.Add(time.Duration(ticks - c.fpga)) }
