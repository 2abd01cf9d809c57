// SPDX-License-Identifier: Apache-2.0

#include "go_asm.h"
#include "textflag.h"

// Functions that C calls: arguments are in DI, SI, DX, CX, R8 and R9, and they may change these, AX, R10 and R11 alone.

// ucs_status_t onMessage(void *key, const void *header, size_t headerLength, void *data, size_t length, const ucp_am_recv_param_t *param)
TEXT onMessage<>(SB), NOSPLIT|NOFRAME, $0-0
	MOVQ key_inbox(DI), R10
	MOVQ inbox_count(R10), R11
	CMPQ R11, $const_inboxNotes
	JCC  inGo
	CMPQ DX, $const_inboxHeader
	JHI  inGo
	MOVQ receiveParam_attributes(R9), AX
	TESTQ $(const_receiveData+const_receiveRendezvous), AX
	JEQ  inGo
	SHLQ $8, R11 // a note has 256 bytes
	ADDQ R10, R11
	INCQ inbox_count(R10)
	MOVQ AX, (inbox_notes+note_attributes)(R11)
	MOVQ receiveParam_replyTo(R9), AX
	MOVQ AX, (inbox_notes+note_replyTo)(R11)
	MOVQ key_number(DI), AX
	MOVQ AX, (inbox_notes+note_number)(R11)
	MOVQ CX, (inbox_notes+note_handle)(R11)
	MOVQ R8, (inbox_notes+note_length)(R11)
	MOVQ DX, (inbox_notes+note_headerLength)(R11)
	LEAQ (inbox_notes+note_header)(R11), DI
	MOVQ DX, CX
	REP; MOVSB
	MOVL $1, AX // UCS_INPROGRESS: the data stays
	RET

inGo:
	MOVQ inbox_message(R10), AX
	JMP  AX

// void onSent(void *request, ucs_status_t status, void *key)
TEXT onSent<>(SB), NOSPLIT|NOFRAME, $0-0
	MOVQ DX, CX
	XORL DX, DX
	JMP  onReceived<>(SB)

// void onReceived(void *request, ucs_status_t status, size_t length, void *key)
TEXT onReceived<>(SB), NOSPLIT|NOFRAME, $0-0
	MOVQ key_inbox(CX), R10
	MOVQ inbox_count(R10), R11
	CMPQ R11, $const_inboxNotes
	JCC  inGo
	SHLQ $8, R11 // a note has 256 bytes
	ADDQ R10, R11
	INCQ inbox_count(R10)
	MOVQ key_number(CX), AX
	MOVQ AX, (inbox_notes+note_number)(R11)
	MOVQ DI, (inbox_notes+note_handle)(R11)
	MOVQ SI, (inbox_notes+note_status)(R11)
	MOVQ DX, (inbox_notes+note_length)(R11)
	MOVQ $0, (inbox_notes+note_attributes)(R11)
	RET

inGo:
	MOVQ inbox_ended(R10), AX
	JMP  AX

DATA ·atMessage(SB)/8, $onMessage<>(SB)
GLOBL ·atMessage(SB), NOPTR|RODATA, $8
DATA ·atReceived(SB)/8, $onReceived<>(SB)
GLOBL ·atReceived(SB), NOPTR|RODATA, $8
DATA ·atSent(SB)/8, $onSent<>(SB)
GLOBL ·atSent(SB), NOPTR|RODATA, $8
