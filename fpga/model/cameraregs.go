// SPDX-License-Identifier: Apache-2.0

package model

import (
	"time"

	"github.com/tegracast/tegracast/fpga"
)

// cameraRegisters are the registers of the camera block that hold a value.
type cameraRegisters struct {
	control             uint32
	width, height       uint32
	format              uint32
	period, exposure    uint32 // ns
	gain                uint32 // 1/256
	events, eventEnable uint32
	sequence            uint64
	delivered, dropped  uint32
	padded, missed      uint32
	lost                uint32
	timeHigh            uint32 // latched when TIME_LOW is read
	sequenceHigh        uint32 // latched when SEQUENCE_LOW is read
	opened              opened // of the frame whose packet was opened most recently
	openedRead          opened // latched when OPEN_LOW is read
}

const (
	cameraCaps = fpga.CapFreeRunning | fpga.CapTriggered | fpga.CapExposure | fpga.CapGain | fpga.CapForceEOP | fpga.CapEvents |
		fpga.CapOpenFrame | fpga.CapTimeSet
	allEvents = uint32(fpga.EventDropped | fpga.EventPadded | fpga.EventOverflow | fpga.EventTriggerMissed |
		fpga.EventForcedEOP)
	unityGain = 256
	maxGain   = 16 * unityGain
)

func resetCameraRegisters(cfg SensorConfig) cameraRegisters {
	return cameraRegisters{
		width: uint32(cfg.Width), height: uint32(cfg.Height), format: uint32(cfg.Format),
		period: uint32(cfg.Period), exposure: uint32(cfg.Exposure), gain: unityGain,
	}
}

func (r *cameraRegisters) triggered() bool             { return r.control&fpga.CameraTriggered != 0 }
func (r *cameraRegisters) periodTime() time.Duration   { return time.Duration(r.period) }
func (r *cameraRegisters) exposureTime() time.Duration { return time.Duration(r.exposure) }

// configError reports whether the registers demand another geometry or format than the sensor's, or, unless frames are
// triggered, a period that is shorter than minPeriod or than the exposure.
func (c *camera) configError() bool {
	cfg := c.sensor.Config()
	return c.width != uint32(cfg.Width) || c.height != uint32(cfg.Height) || c.format != uint32(cfg.Format) ||
		!c.triggered() && (c.periodTime() < minPeriod || c.exposure > c.period)
}

func (c *camera) status() fpga.CameraStatus {
	var s fpga.CameraStatus
	for _, bit := range []struct {
		on   bool
		mask fpga.CameraStatus
	}{
		{c.running, fpga.StatusRunning},
		{c.exposing && !c.d.clock.Now().Before(c.begin), fpga.StatusExposing},
		{c.open || c.unclosed, fpga.StatusPacketOpen},
		{c.configError(), fpga.StatusConfigError},
		{c.host.control&bitRun != 0, fpga.StatusHostReady},
	} {
		if bit.on {
			s |= bit.mask
		}
	}
	return s
}

// raises implements cameraBlock.
func (c *camera) raises() bool { return c.events&c.eventEnable != 0 }

func (c *camera) readRegister(off uint32) uint32 {
	cfg := c.sensor.Config()
	switch off {
	case fpga.CamMagic:
		return fpga.CameraMagic
	case fpga.CamVersion:
		return fpga.CameraVersion
	case fpga.CamCapabilities:
		if c.index > 0 {
			return uint32(cameraCaps &^ fpga.CapTimeSet)
		}
		return uint32(cameraCaps)
	case fpga.CamMaxGeometry:
		return uint32(cfg.Height)<<16 | uint32(cfg.Width)
	case fpga.CamBuffers:
		return FrameBuffers
	case fpga.CamTrailerBytes:
		return fpga.TrailerSize
	case fpga.CamAlign:
		return fpga.FrameAlign
	case fpga.CamMinPeriod:
		return uint32(minPeriod)
	case fpga.CamCount:
		return uint32(len(c.d.blocks))
	case fpga.CamIndex:
		return uint32(c.index)
	case fpga.CamChannel:
		return uint32(c.host.channel)
	case fpga.CamControl:
		return c.control
	case fpga.CamStatus:
		return uint32(c.status())
	case fpga.CamEvents:
		return c.events
	case fpga.CamEventEnable:
		return c.eventEnable
	case fpga.CamWidth:
		return c.width
	case fpga.CamHeight:
		return c.height
	case fpga.CamFormat:
		return c.format
	case fpga.CamPeriod:
		return c.period
	case fpga.CamExposure:
		return c.exposure
	case fpga.CamGain:
		return c.gain
	}
	return c.readDerived(off)
}

// readDerived reads the registers that readRegister does not read itself.
func (c *camera) readDerived(off uint32) uint32 {
	format := fpga.FourCC(c.format)
	switch off {
	case fpga.CamBits:
		if c.format == uint32(c.sensor.cfg.Format) {
			return uint32(format.Bits())
		}
	case fpga.CamStride:
		return c.width * uint32(format.SampleBytes())
	case fpga.CamFrameBytes:
		return c.width * c.height * uint32(format.SampleBytes())
	case fpga.CamTimeLow:
		t := c.d.timestamp(c.d.clock.Now())
		c.timeHigh = uint32(t >> 32)
		return uint32(t)
	case fpga.CamTimeHigh:
		return c.timeHigh
	case fpga.CamSequenceLow:
		c.sequenceHigh = uint32(c.sequence >> 32)
		return uint32(c.sequence)
	case fpga.CamSequenceHigh:
		return c.sequenceHigh
	case fpga.CamDelivered:
		return c.delivered
	case fpga.CamDropped:
		return c.dropped
	case fpga.CamPadded:
		return c.padded
	case fpga.CamTriggerMissed:
		return c.missed
	case fpga.CamLost:
		return c.lost
	case fpga.CamOpenLow:
		c.openedRead = c.opened
		return uint32(c.opened.sequence)
	case fpga.CamOpenHigh:
		return uint32(c.openedRead.sequence >> 32)
	case fpga.CamOpenStartLow:
		return uint32(c.openedRead.start)
	case fpga.CamOpenStartHigh:
		return uint32(c.openedRead.start >> 32)
	}
	if v, ok := c.d.timeSet.read(off); ok && c.index == 0 {
		return v
	}
	return 0
}

func (c *camera) writeRegister(off, v uint32) {
	switch off {
	case fpga.CamControl:
		c.setControl(v)
	case fpga.CamCommand:
		c.command(v)
	case fpga.CamEvents:
		c.events &^= v
	case fpga.CamEventEnable:
		c.eventEnable = v & allEvents
	case fpga.CamWidth:
		c.width = v & 0xffff
	case fpga.CamHeight:
		c.height = v & 0xffff
	case fpga.CamFormat:
		c.format = v
	case fpga.CamPeriod:
		c.period = v
	case fpga.CamExposure:
		c.exposure = v
	case fpga.CamGain:
		c.gain = min(max(v, unityGain), maxGain)
	case fpga.CamTimeStepLow, fpga.CamTimeStepHigh, fpga.CamTimeRate:
		if c.index == 0 {
			c.d.setTime(off, v)
		}
	}
}

// setControl writes Control and handles the edges of Run. While the camera runs, a write that keeps Run set is ignored.
func (c *camera) setControl(v uint32) {
	v &= fpga.CameraRun | fpga.CameraTriggered
	if c.running && v&fpga.CameraRun != 0 {
		return
	}
	rising := v&^c.control&fpga.CameraRun != 0
	c.control = v
	switch {
	case v&fpga.CameraRun == 0:
		c.stop()
	case rising && !c.configError():
		c.start(c.d.clock.Now())
	}
}

func (c *camera) command(v uint32) {
	if v&fpga.CommandTrigger != 0 {
		c.trigger(c.d.clock.Now())
	}
	if v&fpga.CommandForceEOP != 0 && (c.open || c.unclosed) {
		c.forced, c.closing = c.open, !c.open
		c.events |= uint32(fpga.EventForcedEOP)
		c.host.kick()
	}
}
