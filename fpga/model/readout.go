// SPDX-License-Identifier: Apache-2.0

package model

import "time"

// readoutLines is the number of lines sent at a time while a frame is read out.
const readoutLines = 8

// makeAhead makes the picture of the current frame during its exposure, so that its first line can be sent in time.
func (c *camera) makeAhead() {
	c.d.mu.Lock()
	seq, setting := c.sequence, c.setting
	c.d.mu.Unlock()
	c.exposer.expose(c.sensor, setting, c.sensor.replayed(seq), &c.ahead)
}

// arrived returns how many bytes of the oldest frame can be sent: all, or those of the lines that the sensor has
// delivered, in steps of readoutLines. While more are to come, it makes sure that the host's engine is woken for them.
// Device.mu must be held.
func (c *camera) arrived() int {
	b, cfg := c.full[0], &c.sensor.cfg
	now := c.d.clock.Now()
	since := now.Sub(b.begin)
	if since >= cfg.Readout {
		return c.size
	}
	line := max(1, cfg.Readout/time.Duration(cfg.Height))
	steps := int(max(0, since) / (readoutLines * line))
	if next := b.begin.Add(time.Duration(steps+1) * readoutLines * line); now.After(c.lines) || now.Equal(c.lines) {
		c.lines = b.begin.Add(min(next.Sub(b.begin), cfg.Readout))
		c.d.after(c.lines.Sub(now), c.host.kick)
	}
	return min(steps*readoutLines, cfg.Height) * c.sensor.line / BeatBytes * BeatBytes
}
