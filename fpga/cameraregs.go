// SPDX-License-Identifier: Apache-2.0

package fpga

// MaxDimension is the maximum width of a frame in samples, and its maximum height in lines.
const MaxDimension = 1 << 15

// Values of the first registers of a camera block.
const (
	CameraMagic   = 0x4d414354 // "TCAM" in memory
	CameraVersion = 1<<16 | 3  // major << 16 | minor; the major number changes with incompatible register maps
)

// FrameAlign is a divisor of the number of pixel bytes in a frame. C2H stream descriptors must be multiples of it
// (PG195, Length Granularity), and the trailer starts a new descriptor.
const FrameAlign = 64

// CameraBlock is the distance between camera blocks in the user BAR in bytes: block n starts at n * CameraBlock.
const CameraBlock = 0x1000

// Byte offsets in a camera block (docs/fpga-interface.md, "Camera registers").
const (
	CamMagic         = 0x000 // RO  CameraMagic
	CamVersion       = 0x004 // RO  CameraVersion
	CamCapabilities  = 0x008 // RO  CameraCaps
	CamMaxGeometry   = 0x00c // RO  31:16 lines, 15:0 samples
	CamBuffers       = 0x010 // RO  frames that the frame memory holds
	CamTrailerBytes  = 0x014 // RO  TrailerSize
	CamAlign         = 0x018 // RO  bytes: FRAME_BYTES must be a multiple of this and of FrameAlign
	CamMinPeriod     = 0x01c // RO  shortest frame period in ns
	CamCount         = 0x020 // RO  number of camera blocks in the user BAR; 0, in version 1.0, means 1
	CamIndex         = 0x024 // RO  number of this camera block
	CamChannel       = 0x028 // RO  C2H channel that the camera feeds
	CamControl       = 0x040 // RW  CameraRun, CameraTriggered
	CamCommand       = 0x044 // WO  CommandTrigger, CommandForceEOP; self-clearing
	CamStatus        = 0x048 // RO  CameraStatus
	CamEvents        = 0x04c // RW1C CameraEvents
	CamEventEnable   = 0x050 // RW  CameraEvents that raise user interrupt CamIndex
	CamWidth         = 0x060 // RW  samples
	CamHeight        = 0x064 // RW  lines
	CamFormat        = 0x068 // RW  FourCC
	CamBits          = 0x06c // RO  significant bits per sample of FORMAT; 0 if FORMAT is not supported
	CamStride        = 0x070 // RO  bytes from one line to the next
	CamFrameBytes    = 0x074 // RO  pixel bytes of a frame, without the trailer
	CamPeriod        = 0x080 // RW  frame period in ns, free-running mode
	CamExposure      = 0x084 // RW  exposure in ns
	CamGain          = 0x088 // RW  analogue gain in 1/256
	CamTimeLow       = 0x0a0 // RO  timestamp counter in ns, bits 31:0; reading it latches TIME_HIGH
	CamTimeHigh      = 0x0a4 // RO  bits 63:32 as latched
	CamSequenceLow   = 0x0a8 // RO  sequence number of the next frame, bits 31:0; latches SEQUENCE_HIGH
	CamSequenceHigh  = 0x0ac // RO  bits 63:32 as latched
	CamDelivered     = 0x0b0 // RO  frames sent completely since start
	CamDropped       = 0x0b4 // RO  frames dropped at the source since start
	CamPadded        = 0x0b8 // RO  frames padded since start
	CamTriggerMissed = 0x0bc // RO  triggers that arrived during an exposure, since start
	CamLost          = 0x0c0 // RO  frames sent truncated or without their end, since start
	CamOpenLow       = 0x0c8 // RO  number of the frame being sent, or of the latest, bits 31:0; latches the next three
	CamOpenHigh      = 0x0cc // RO  bits 63:32 as latched
	CamOpenStartLow  = 0x0d0 // RO  start of that frame's exposure by the timestamp counter in ns, bits 31:0, as latched
	CamOpenStartHigh = 0x0d4 // RO  bits 63:32 as latched
	CamTimeStepLow   = 0x0e0 // RW  signed ns to add to the timestamp counter, bits 31:0; block 0 only, like the next two
	CamTimeStepHigh  = 0x0e4 // RW  bits 63:32; writing it adds the value once
	CamTimeRate      = 0x0e8 // RW  signed parts in 10^9 by which the timestamp counter runs faster
)

// CameraCaps are the bits of the capability register.
type CameraCaps uint32

const (
	CapFreeRunning CameraCaps = 1 << iota // frames started by the frame timer
	CapTriggered                          // frames started by a trigger
	CapExposure                           // EXPOSURE has an effect
	CapGain                               // GAIN has an effect
	CapForceEOP                           // the force-end-of-packet command works
	CapEvents                             // EVENTS, EVENT_ENABLE and the user interrupt work
	CapOpenFrame                          // OPEN_SEQUENCE and OPEN_START describe the frame being sent
	CapTimeSet                            // TIME_STEP and TIME_RATE set the timestamp counter; block 0 only
)

// Bits of the control register.
const (
	CameraRun       = 1 << 0 // take frames
	CameraTriggered = 1 << 1 // start frames by trigger instead of the frame timer; change only while stopped
)

// Bits of the command register.
const (
	CommandTrigger  = 1 << 0 // start one exposure
	CommandForceEOP = 1 << 1 // end the open stream packet
)

// CameraStatus are the bits of the status register.
type CameraStatus uint32

const (
	StatusRunning     CameraStatus = 1 << iota // frames are being taken
	StatusExposing                             // a frame is being exposed
	StatusPacketOpen                           // a packet has begun and not yet ended
	StatusConfigError                          // impossible geometry, format or times: setting CameraRun has no effect
	StatusHostReady                            // the DMA channel's Run bit is set (c2h_sts[6])
)

// CameraEvents are the bits of the event registers.
type CameraEvents uint32

const (
	EventDropped       CameraEvents = 1 << iota // a frame was dropped at the source
	EventPadded                                 // a frame was padded
	EventOverflow                               // samples were lost inside a frame
	EventTriggerMissed                          // a trigger arrived during an exposure
	EventForcedEOP                              // a packet was ended by command
)
