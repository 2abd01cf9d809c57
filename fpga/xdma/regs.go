// SPDX-License-Identifier: Apache-2.0

package xdma

// Register targets (PG195, address map: address = target<<12 | channel<<8 | offset), and values and limits of registers
// and descriptors.
const (
	targetH2C       = 0x0
	targetC2H       = 0x1
	targetIRQ       = 0x2
	targetConfig    = 0x3
	targetH2CSGDMA  = 0x4
	targetC2HSGDMA  = 0x5
	targetSGDMA     = 0x6
	barSize         = 0x8000 // smallest BAR that can hold the registers
	identifierH2C   = 0x1fc0
	identifierC2H   = 0x1fc1
	identifierIRQ   = 0x1fc2
	identifierConf  = 0x1fc3
	maxChannels     = 4
	gone            = ^uint32(0) // value read from a device that has left the bus
	maxCredits      = 1<<10 - 1  // PG195, descriptor credits: 10 bits
	maxAdjacent     = 63         // PG195, Nxt_adj and adjacent descriptors: 6 bits
	maxDescriptor   = 1<<28 - 1  // PG195, descriptor length: 28 bits
	c2hGranularity  = 64         // PG195, Length Granularity: a C2H stream descriptor must be a multiple of it
	descriptorSize  = 32
	userInterrupts  = 16
	descriptorPage  = 4096 // a block of adjacent descriptors must not cross this boundary
	descriptorMagic = 0xad4b << 16
	writeBackMagic  = 0x52b4
	writeBackSize   = 32 // space for each C2H stream write-back; 8 bytes of it are written
)

// Channel register block.
const (
	regIdentifier   = 0x00
	regControl      = 0x04
	regControlW1S   = 0x08
	regControlW1C   = 0x0c
	regStatus       = 0x40
	regStatusClear  = 0x44 // reading it clears the status
	regCompleted    = 0x48
	regAlignments   = 0x4c
	regPollLow      = 0x88
	regPollHigh     = 0x8c
	regIntEnable    = 0x90
	regPerfControl  = 0xc0
	regPerfCyclesLo = 0xc4
	regPerfCyclesHi = 0xc8
	regPerfDataLo   = 0xcc
	regPerfDataHi   = 0xd0
)

// SGDMA block of a channel, and the common one.
const (
	regDescLow     = 0x80
	regDescHigh    = 0x84
	regDescAdj     = 0x88
	regDescCredits = 0x8c
	regHaltW1S     = 0x14
	regHaltW1C     = 0x18
	regCreditW1S   = 0x24
	regCreditW1C   = 0x28
)

// IRQ block.
const (
	regUserIntEnable       = 0x04
	regUserIntEnableW1S    = 0x08
	regUserIntEnableW1C    = 0x0c
	regUserRequest         = 0x40
	regUserVectors         = 0x80 // four dwords
	regChannelIntEnable    = 0x10
	regChannelIntEnableW1S = 0x14
	regChannelIntEnableW1C = 0x18
	regChannelVectors      = 0xa0 // two dwords
)

// Register of the config block.
const regDataWidth = 0x18 // 0: 64 bits, 1: 128, 2: 256, 3: 512

// Bits of the control, status and interrupt mask registers. From bit 1 on, status and interrupt mask have the bits of
// control at the same positions (PG195, channel control).
const (
	controlRun       = 1 << 0
	controlPoll      = 1 << 26 // poll-mode write-back
	statusBusy       = 1 << 0
	bitDescStopped   = 1 << 1
	bitDescCompleted = 1 << 2
	bitAlignMismatch = 1 << 3
	bitMagicStopped  = 1 << 4
	bitInvalidLength = 1 << 5
	bitIdleStopped   = 1 << 6
	bitsReadError    = 0x1f << 9
	bitsWriteError   = 0x1f << 14
	bitsDescError    = 0x1f << 19
	bitsFatal        = bitAlignMismatch | bitMagicStopped | bitInvalidLength | bitsReadError | bitsWriteError | bitsDescError
	bitsLogged       = bitsFatal | bitDescStopped | bitDescCompleted | bitIdleStopped
	bitsRaised       = bitsFatal | bitDescStopped | bitDescCompleted // those that raise an interrupt
)

// Performance control bits (PG195, channel performance monitor).
const (
	perfAuto  = 1 << 0
	perfClear = 1 << 1
	perfRun   = 1 << 2
	perfFull  = 1 << 16 // in the high registers: the counter has stopped at its maximum
)

// Descriptor control bits.
const (
	descStop      = 1 << 0
	descCompleted = 1 << 1
	descEOP       = 1 << 4
)
