// SPDX-License-Identifier: Apache-2.0

#include "go_asm.h"
#include "textflag.h"

// Functions that C calls: arguments are in R0 to R5, and they may change these and R8 to R15 alone. The assembler uses R27 for large
// numbers and for addresses of symbols, which C needs: there are none here.

// ucs_status_t onMessage(void *key, const void *header, size_t headerLength, void *data, size_t length, const ucp_am_recv_param_t *param)
TEXT onMessage<>(SB), NOSPLIT|NOFRAME, $0-0
	MOVD key_inbox(R0), R8
	MOVD inbox_count(R8), R9
	CMP  $const_inboxNotes, R9
	BHS  inGo
	CMP  $const_inboxHeader, R2
	BHI  inGo
	MOVD receiveParam_attributes(R5), R11
	TST  $(const_receiveData+const_receiveRendezvous), R11
	BEQ  inGo
	ADD  R9<<8, R8, R10 // a note has 256 bytes
	ADD  $1, R9, R9
	MOVD R9, inbox_count(R8)
	MOVD R11, (inbox_notes+note_attributes)(R10)
	MOVD receiveParam_replyTo(R5), R11
	MOVD R11, (inbox_notes+note_replyTo)(R10)
	MOVD key_number(R0), R11
	MOVD R11, (inbox_notes+note_number)(R10)
	MOVD R3, (inbox_notes+note_handle)(R10)
	MOVD R4, (inbox_notes+note_length)(R10)
	MOVD R2, (inbox_notes+note_headerLength)(R10)
	ADD  $(inbox_notes+note_header), R10, R10
	CBZ  R2, end

copy:
	MOVBU.P 1(R1), R11
	MOVB.P  R11, 1(R10)
	SUBS    $1, R2, R2
	BNE     copy

end:
	MOVD $1, R0 // UCS_INPROGRESS: the data stays
	RET

inGo:
	MOVD inbox_message(R8), R8
	JMP  (R8)

// void onSent(void *request, ucs_status_t status, void *key)
TEXT onSent<>(SB), NOSPLIT|NOFRAME, $0-0
	MOVD R2, R3
	MOVD ZR, R2
	B    onReceived<>(SB)

// void onReceived(void *request, ucs_status_t status, size_t length, void *key)
TEXT onReceived<>(SB), NOSPLIT|NOFRAME, $0-0
	MOVD key_inbox(R3), R8
	MOVD inbox_count(R8), R9
	CMP  $const_inboxNotes, R9
	BHS  inGo
	ADD  R9<<8, R8, R10 // a note has 256 bytes
	ADD  $1, R9, R9
	MOVD R9, inbox_count(R8)
	MOVD key_number(R3), R11
	MOVD R11, (inbox_notes+note_number)(R10)
	MOVD R0, (inbox_notes+note_handle)(R10)
	MOVD R1, (inbox_notes+note_status)(R10)
	MOVD R2, (inbox_notes+note_length)(R10)
	MOVD ZR, (inbox_notes+note_attributes)(R10)
	RET

inGo:
	MOVD inbox_ended(R8), R8
	JMP  (R8)

DATA ·atMessage(SB)/8, $onMessage<>(SB)
GLOBL ·atMessage(SB), NOPTR|RODATA, $8
DATA ·atReceived(SB)/8, $onReceived<>(SB)
GLOBL ·atReceived(SB), NOPTR|RODATA, $8
DATA ·atSent(SB)/8, $onSent<>(SB)
GLOBL ·atSent(SB), NOPTR|RODATA, $8
