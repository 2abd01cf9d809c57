// SPDX-License-Identifier: Apache-2.0

package model

import "time"

// readoutLines is the number of lines sent at a time while a frame is read out.
const readoutLines = 8

// made is a frame that was built during its exposure, so that its first line can be sent in time.
type made struct {
	opened
	ok      bool
	run     uint64
	setting exposing
	data    []byte
}

// makeAhead builds the current frame if it has not been built yet. If anything changes before it is taken, it is built
// again.
func (c *camera) makeAhead() {
	m := &c.made
	c.d.mu.Lock()
	run, seq, setting := c.runs, c.sequence, c.setting
	t := c.trailer(seq, c.begin, setting.time)
	same := m.ok && m.run == run && m.sequence == seq && m.setting == setting && m.start == t.Start
	c.d.mu.Unlock()
	if same {
		return
	}
	if m.data == nil {
		m.data = make([]byte, len(c.buffers[0].data))
	}
	c.build(m.data, seq, setting, t)
	m.ok, m.run, m.opened, m.setting = true, run, opened{seq, t.Start}, setting
}

// arrived returns how many bytes of the oldest frame can be sent: all, or those of the lines that the sensor has
// delivered, in steps of readoutLines. While more are to come, it makes sure that the host's engine is woken for them.
// Device.mu must be held.
func (c *camera) arrived() int {
	b, cfg := c.full[0], &c.sensor.cfg
	now := c.d.clock.Now()
	since := now.Sub(b.begin)
	if since >= cfg.Readout {
		return len(b.data)
	}
	line := max(1, cfg.Readout/time.Duration(cfg.Height))
	steps := int(max(0, since) / (readoutLines * line))
	if next := b.begin.Add(time.Duration(steps+1) * readoutLines * line); now.After(c.lines) || now.Equal(c.lines) {
		c.lines = b.begin.Add(min(next.Sub(b.begin), cfg.Readout))
		c.d.after(c.lines.Sub(now), c.host.kick)
	}
	return min(steps*readoutLines, cfg.Height) * c.sensor.line / BeatBytes * BeatBytes
}
