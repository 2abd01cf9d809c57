// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// How far ahead memory is fetched: the bytes that the streams take until they are joined.
#define AHEAD (4 * 32 * 64)

// STEP continues the registers R6 and R7 with 16 bytes of the first and the second stream.
#define STEP(CRC32, offset)      \
	LDP   offset(R1), (R8, R9);   \
	LDP   offset(R2), (R10, R11); \
	CRC32 R8, R6;                 \
	CRC32 R10, R7;                \
	CRC32 R9, R6;                 \
	CRC32 R11, R7

// FOLD takes a word of the third stream's block: its halves times those of V16, and the word of the next block.
#define FOLD(word, next)                \
	VPMULL  V16.D1, word.D1, V6.Q1;    \
	VPMULL2 V16.D2, word.D2, word.Q1;  \
	VEOR    V6.B16, word.B16, word.B16; \
	VEOR    next.B16, word.B16, word.B16

// REDUCE continues the register R5 with a word.
#define REDUCE(CRC32, word) \
	VMOV  word.D[0], R8;     \
	VMOV  word.D[1], R9;     \
	CRC32 R8, R5;            \
	CRC32 R9, R5

// STREAMS computes three streams, of n, n and 2n lines: the registers of two, the first of which begins with that so far,
// by CRC32, and a block with the same CRC as the third by PMULL. So both units are busy. The registers times the powers
// join the third stream in its last 8 bytes: the last step multiplies by x^32 both what comes before and the data.
#define STREAMS(CRC32)               \
	MOVWU   register+0(FP), R6;       \
	MOVD    $0, R7;                   \
	MOVD    $0, R5;                   \
	MOVD    b+8(FP), R1;              \
	MOVD    n+16(FP), R4;             \
	MOVD    k+24(FP), R12;            \
	ADD     R4<<6, R1, R2;            \
	ADD     R4<<6, R2, R3;            \
	VLD1.P  16(R12), [V16.D2];        \
	VEOR    V0.B16, V0.B16, V0.B16;   \
	VEOR    V1.B16, V1.B16, V1.B16;   \
	VEOR    V2.B16, V2.B16, V2.B16;   \
	VEOR    V3.B16, V3.B16, V3.B16;   \
next:                                \
	PRFM    AHEAD(R1), PLDL1KEEP;     \
	PRFM    AHEAD(R2), PLDL1KEEP;     \
	PRFM    AHEAD(R3), PLDL1KEEP;     \
	PRFM    (AHEAD+64)(R3), PLDL1KEEP; \
	FLDPQ   0(R3), (F4, F5);          \
	FOLD(V0, V4);                     \
	STEP(CRC32, 0);                   \
	FOLD(V1, V5);                     \
	FLDPQ   32(R3), (F4, F5);         \
	FOLD(V2, V4);                     \
	STEP(CRC32, 16);                  \
	FOLD(V3, V5);                     \
	FLDPQ   64(R3), (F4, F5);         \
	FOLD(V0, V4);                     \
	STEP(CRC32, 32);                  \
	FOLD(V1, V5);                     \
	FLDPQ   96(R3), (F4, F5);         \
	FOLD(V2, V4);                     \
	STEP(CRC32, 48);                  \
	FOLD(V3, V5);                     \
	ADD     $64, R1;                  \
	ADD     $64, R2;                  \
	ADD     $128, R3;                 \
	SUBS    $1, R4;                   \
	BNE     next;                     \
	VLD1    (R12), [V16.D2];          \
	FMOVD   R6, F4;                   \
	VMOV    R7, V4.D[1];              \
	VPMULL  V16.D1, V4.D1, V5.Q1;     \
	VPMULL2 V16.D2, V4.D2, V4.Q1;     \
	VEOR    V4.B16, V5.B16, V4.B16;   \
	VMOV    V4.D[0], R8;              \
	VEOR    V5.B16, V5.B16, V5.B16;   \
	VMOV    R8, V5.D[1];              \
	VEOR    V5.B16, V3.B16, V3.B16;   \
	REDUCE(CRC32, V0);                \
	REDUCE(CRC32, V1);                \
	REDUCE(CRC32, V2);                \
	REDUCE(CRC32, V3);                \
	MOVW    R5, ret+32(FP);           \
	RET

// func castagnoliStreams(register uint32, b *byte, n int, k *[4]uint64) uint32
TEXT ·castagnoliStreams(SB), NOSPLIT, $0-36
	STREAMS(CRC32CX)

// func ieeeStreams(register uint32, b *byte, n int, k *[4]uint64) uint32
TEXT ·ieeeStreams(SB), NOSPLIT, $0-36
	STREAMS(CRC32X)
