// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"math/bits"
	"sync"

	"github.com/tegracast/tegracast/fpga"
)

// Bits of Control (04), Status (40) and the interrupt mask (90) of a channel.
const (
	bitRun           = 1 << 0 // Busy in Status
	bitStopped       = 1 << 1
	bitCompleted     = 1 << 2
	bitAlign         = 1 << 3
	bitMagic         = 1 << 4
	bitInvalidLength = 1 << 5
	bitIdle          = 1 << 6
	shiftReadError   = 9
	shiftWriteError  = 14
	shiftDescError   = 19
	bitNonInc        = 1 << 25
	bitPoll          = 1 << 26
	bitNoWriteBack   = 1 << 27

	fieldErrors = 0x7fff << shiftReadError
	anyError    = bitAlign | bitMagic | bitInvalidLength | fieldErrors
	logBits     = 0x7e | fieldErrors
	controlBits = bitRun | logBits | bitNonInc | bitPoll | bitNoWriteBack

	// Bits within the 5-bit error fields.
	hostUnsupported = 1 << 0 // read_error of H2C and desc_error: unsupported request
	cardDecode      = 1 << 0 // read_error of C2H and write_error: decode error
)

// Registers of a channel block.
const (
	chControl     = 0x04 // also 08 W1S, 0C W1C
	chStatus      = 0x40
	chStatusClear = 0x44
	chCompleted   = 0x48
	chAlignments  = 0x4c
	chPollLow     = 0x88
	chPollHigh    = 0x8c
	chMask        = 0x90 // also 94 W1S, 98 W1C
	chPerfControl = 0xc0
	chPerf        = 0xc4 // to D0
)

// Registers of a channel's SGDMA block.
const (
	sgFirstLow  = 0x80
	sgFirstHigh = 0x84
	sgAdjacent  = 0x88
	sgCredits   = 0x8c
	creditBits  = 0x3ff // valid bits of sgCredits
)

// engine is one DMA channel: its registers, and the goroutine that moves the data.
type engine struct {
	d       *Device
	dir     fpga.Direction
	channel int
	stream  bool
	source  streamSource // C2H stream
	sink    streamSink   // H2C stream; nil discards the data
	frames  *frameSink   // same as sink, if that is a frame sink; otherwise nil
	wake    chan struct{}

	pollOrder sync.Mutex // held while the poll-mode write-back is written, acquired before d.mu
	pollBytes [4]byte    // guarded by pollOrder

	// Guarded by d.mu.
	control, status, mask uint32 // status never contains Busy; see busy
	busy                  bool
	starts                uint64 // rising edges of Run
	restarted             bool   // Run fell and rose while the engine was busy
	completed             uint32
	pollAddr, first       uint64
	firstAdjacent         uint32
	credits               uint32
	perf                  perfMonitor
	faultyState

	work transferState // used only by the goroutine
}

func newEngine(d *Device, dir fpga.Direction, channel int, stream bool) *engine {
	return &engine{d: d, dir: dir, channel: channel, stream: stream, wake: make(chan struct{}, 1)}
}

func (e *engine) kick() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// commonBit returns the channel's bit in the SGDMA common block.
func (e *engine) commonBit() uint32 { return 1 << (16*int(e.dir) + e.channel) }

// cause returns 1 if the channel requests an interrupt, otherwise 0.
func (e *engine) cause() uint32 {
	if e.status&e.mask != 0 || e.requestStays {
		return 1
	}
	return 0
}

func (e *engine) readChannel(off uint32) uint32 {
	switch off {
	case 0:
		return identifier(targetH2C+uint32(e.dir), e.stream, e.channel)
	case chControl:
		return e.control
	case chStatus:
		return e.statusRegister()
	case chStatusClear:
		v := e.statusRegister()
		e.status = 0
		e.d.updateIRQ()
		return v
	case chCompleted:
		return e.completed
	case chAlignments:
		granularity := uint32(1)
		if e.stream {
			granularity = BeatBytes
		}
		return 1<<16 | granularity<<8 | 64
	case chPollLow:
		return uint32(e.pollAddr)
	case chPollHigh:
		return uint32(e.pollAddr >> 32)
	case chMask:
		return e.mask
	case chPerfControl:
		return e.perf.control
	case chPerf, chPerf + 4, chPerf + 8, chPerf + 12:
		return e.perf.read((off-chPerf)/4, e.d.clock.Now())
	}
	return 0
}

func (e *engine) statusRegister() uint32 {
	if e.busy || e.holdsBusy() {
		return e.status | bitRun
	}
	return e.status
}

func (e *engine) writeChannel(off, v uint32) {
	switch off {
	case chControl, chControl + 4, chControl + 8:
		e.setControl(setClear(e.control, off-chControl, v))
	case chStatus:
		e.status &^= v
	case chPollLow:
		e.pollAddr = e.pollAddr&^0xffffffff | uint64(v)
	case chPollHigh:
		e.pollAddr = e.pollAddr&0xffffffff | uint64(v)<<32
	case chMask, chMask + 4, chMask + 8:
		e.mask = setClear(e.mask, off-chMask, v) & e.maskBits()
		e.requestStays = e.requestStays && e.mask != 0
	case chPerfControl:
		e.perf.write(v, e.control&bitRun != 0, e.d.clock.Now())
	default:
		return
	}
	e.d.updateIRQ()
}

// logBits returns the channel's Status bits except Busy: C2H has no write_error.
func (e *engine) logBits() uint32 {
	if e.dir == fpga.C2H {
		return logBits &^ (0x1f << shiftWriteError)
	}
	return logBits
}

// maskBits returns the bits of the interrupt mask: for C2H, align_mismatch and invalid_length have none.
func (e *engine) maskBits() uint32 {
	if e.dir == fpga.C2H {
		return e.logBits() &^ (bitAlign | bitInvalidLength)
	}
	return e.logBits()
}

// setControl writes Control and handles the edges of Run.
func (e *engine) setControl(v uint32) {
	old := e.control
	e.control = v & (e.logBits() | controlBits&^logBits)
	now := e.d.clock.Now()
	switch rising, falling := e.control&^old&bitRun != 0, old&^e.control&bitRun != 0; {
	case rising:
		e.status, e.completed = 0, e.firstCount()
		e.restarted = e.busy
		e.busy = true
		e.starts++
		e.perf.start(now)
	case falling:
		e.credits = 0
		e.perf.stop(now)
		if !e.busy {
			e.detach()
		}
	}
	e.kick()
}

// detach informs the channel's stream that Run has fallen. If the engine is busy at that time, its goroutine calls
// detach after the current descriptor.
func (e *engine) detach() {
	if e.source != nil {
		e.source.detach()
	}
	if e.sink != nil {
		e.sink.detach()
	}
}

func (e *engine) readSGDMA(off uint32) uint32 {
	switch off {
	case 0:
		return identifier(targetH2CSGDMA+uint32(e.dir), e.stream, e.channel)
	case sgFirstLow:
		return uint32(e.first)
	case sgFirstHigh:
		return uint32(e.first >> 32)
	case sgAdjacent:
		return e.firstAdjacent
	case sgCredits:
		return e.credits
	}
	return 0
}

// writeSGDMA writes a register of the channel's SGDMA block. Written credits are added modulo 1,024, and ignored if the
// channel is not in credit mode.
func (e *engine) writeSGDMA(off, v uint32) {
	switch off {
	case sgFirstLow:
		e.first = e.first&^0xffffffff | uint64(v)
	case sgFirstHigh:
		e.first = e.first&0xffffffff | uint64(v)<<32
	case sgAdjacent:
		e.firstAdjacent = v & 0x3f
	case sgCredits:
		if e.d.common.creditMode&e.commonBit() != 0 && !e.losesCredits() {
			if v > creditBits-e.credits {
				e.d.broken(fmt.Errorf("%v channel %d has %d credits and is given %d: %w", e.dir, e.channel, e.credits, v, RuleCredits))
			}
			e.credits = (e.credits + v&creditBits) & creditBits
			e.kick()
		}
	}
}

// logs reports whether Control enables logging of a Status bit.
func (e *engine) logs(status uint32) bool {
	e.d.mu.Lock()
	defer e.d.mu.Unlock()
	return e.control&e.logBits()&status != 0
}

// log sets those of the Status bits whose logging Control enables, and returns them.
func (e *engine) log(status uint32) uint32 {
	status &= e.control & e.logBits()
	e.status |= status
	return status
}

// pollWord returns the poll-mode write-back with the number of completed descriptors reduced by ago.
func (e *engine) pollWord(ago uint32) uint32 {
	word := (e.completed - ago) & 0xffffff
	if bits.OnesCount32(e.status&anyError) > 0 {
		word |= 1 << 31
	}
	return word
}
