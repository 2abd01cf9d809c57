// Package mailbox is a card whose registers are reached by messages: the FPGA model outside a virtual machine, seen
// through QEMU's ivshmem-doorbell device (1af4:1110). BAR 2 is memory that both sides share; a write to a register of
// BAR 0 rings the card.
//
// The shared memory begins with 32-bit words, little endian: what the card is, then one slot for each user, who has
// one request at a time. He writes operation, offset and value, then a sequence number that differs from the response's,
// and rings the doorbell. The card does the access, and writes the result, then the sequence number of what it has
// answered. A request that was left over when the card came reads all ones and writes nothing, as with a device that was
// away.
package mailbox

// The words by which the card says what it is.
const (
	MagicOff      = 0x00 // Magic, written before the generation
	GenerationOff = 0x04 // how many times a card has come; 0 is never
	SizesOff      = 0x10 // bytes of BARs 0 to 5, 0 for one that is not there

	Magic = 0x4d434754 // "TGCM"
)

// The slots: slot n is at SlotsOff + n*SlotSize.
const (
	SlotsOff = 0x40
	SlotSize = 0x80

	User      = 0 // slot of the driver of the card
	Halt      = 1 // first slot of who stops the card's engines when the driver cannot: the kernel
	HaltSlots = 8
	Slots     = Halt + HaltSlots
)

// The words of a slot.
const (
	RequestOff   = 0x00 // sequence number
	OperationOff = 0x04 // bits 7:0 OpRead or OpWrite, bits 15:8 the BAR
	OffsetOff    = 0x08 // byte offset in the BAR
	ValueOff     = 0x0c // to write
	ResponseOff  = 0x40 // sequence number
	ResultOff    = 0x44 // what was read

	OpRead  = 1
	OpWrite = 2
)

// QEMU's ivshmem-doorbell (docs/specs/ivshmem-spec).
const (
	Vendor = 0x1af4 // of PCI
	Device = 0x1110

	SharedBAR   = 2
	DoorbellBAR = 0
	DoorbellOff = 12 // bits 31:16 the peer, bits 15:0 its vector
	CardPeer    = 1

	ring = CardPeer << 16
)

const bars = 6
