// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// Kernels of luma and chroma in planes for NEON, written as those of kernels_arm64.s. Of a sum with the offset they keep
// the upper half, and shift it by the rest of the shift, which is more than 16.

// func lumaBytesNEON(dst *byte, red, green, blue *uint16, n int, a *lumaArgs)
TEXT ·lumaBytesNEON(SB), NOSPLIT, $0-48
	MOVD  dst+0(FP), R0
	MOVD  red+8(FP), R1
	MOVD  green+16(FP), R2
	MOVD  blue+24(FP), R3
	MOVD  n+32(FP), R4
	MOVD  a+40(FP), R5
	MOVWU 12(R5), R6
	MOVD  $16, R7
	SUB   R6, R7
	WORD $0xfc4084af // ldr d15, [x5], #8
	WORD $0x4d40c8b0 // ld1r {v16.4s}, [x5]
	WORD $0x4e020cf1 // dup v17.8h, w7

loop:
	WORD $0xacc10420 // ldp q0, q1, [x1], #32
	WORD $0xacc10c42 // ldp q2, q3, [x2], #32
	WORD $0xacc11464 // ldp q4, q5, [x3], #32
	WORD $0x2f4fa006 // umull v6.4s, v0.4h, v15.h[0]
	WORD $0x6f4fa007 // umull2 v7.4s, v0.8h, v15.h[0]
	WORD $0x2f4fa032 // umull v18.4s, v1.4h, v15.h[0]
	WORD $0x6f4fa033 // umull2 v19.4s, v1.8h, v15.h[0]
	WORD $0x2f5f2046 // umlal v6.4s, v2.4h, v15.h[1]
	WORD $0x6f5f2047 // umlal2 v7.4s, v2.8h, v15.h[1]
	WORD $0x2f5f2072 // umlal v18.4s, v3.4h, v15.h[1]
	WORD $0x6f5f2073 // umlal2 v19.4s, v3.8h, v15.h[1]
	WORD $0x2f6f2086 // umlal v6.4s, v4.4h, v15.h[2]
	WORD $0x6f6f2087 // umlal2 v7.4s, v4.8h, v15.h[2]
	WORD $0x2f6f20b2 // umlal v18.4s, v5.4h, v15.h[2]
	WORD $0x6f6f20b3 // umlal2 v19.4s, v5.8h, v15.h[2]
	WORD $0x0e7040c0 // addhn v0.4h, v6.4s, v16.4s
	WORD $0x4e7040e0 // addhn2 v0.8h, v7.4s, v16.4s
	WORD $0x0e704241 // addhn v1.4h, v18.4s, v16.4s
	WORD $0x4e704261 // addhn2 v1.8h, v19.4s, v16.4s
	WORD $0x6e714400 // ushl v0.8h, v0.8h, v17.8h
	WORD $0x6e714421 // ushl v1.8h, v1.8h, v17.8h
	WORD $0x4e011800 // uzp1 v0.16b, v0.16b, v1.16b
	WORD $0x3c810400 // str q0, [x0], #16
	SUBS $16, R4
	BGT  loop
	RET

// func chroma420NEON(cb, cr *byte, step int, p, q *[3]*uint16, n int, a *chromaArgs)
//
// The weights of Cb and of Cr add up to 0, so that the sums of red and blue less that of green are multiplied.
TEXT ·chroma420NEON(SB), NOSPLIT, $0-56
	MOVD  cb+0(FP), R0
	MOVD  cr+8(FP), R9
	MOVD  step+16(FP), R10
	MOVD  p+24(FP), R5
	LDP   0(R5), (R1, R2)
	MOVD  16(R5), R3
	MOVD  q+32(FP), R5
	LDP   0(R5), (R6, R7)
	MOVD  16(R5), R8
	MOVD  n+40(FP), R4
	MOVD  a+48(FP), R5
	MOVWU 20(R5), R11
	MOVD  $16, R12
	SUB   R11, R12
	WORD $0xfc4084ae // ldr d14, [x5], #8
	WORD $0xfc4084af // ldr d15, [x5], #8
	WORD $0x4d40c8b0 // ld1r {v16.4s}, [x5]
	WORD $0x4e020d91 // dup v17.8h, w12

loop:
	WORD $0xacc10420 // ldp q0, q1, [x1], #32
	WORD $0xacc10cc2 // ldp q2, q3, [x6], #32
	WORD $0xacc11444 // ldp q4, q5, [x2], #32
	WORD $0xacc11ce6 // ldp q6, q7, [x7], #32
	WORD $0xacc14c72 // ldp q18, q19, [x3], #32
	WORD $0xacc15514 // ldp q20, q21, [x8], #32
	WORD $0x4e628400 // add v0.8h, v0.8h, v2.8h
	WORD $0x4e638421 // add v1.8h, v1.8h, v3.8h
	WORD $0x4e668484 // add v4.8h, v4.8h, v6.8h
	WORD $0x4e6784a5 // add v5.8h, v5.8h, v7.8h
	WORD $0x4e748652 // add v18.8h, v18.8h, v20.8h
	WORD $0x4e758673 // add v19.8h, v19.8h, v21.8h
	WORD $0x4e61bc00 // addp v0.8h, v0.8h, v1.8h
	WORD $0x4e65bc81 // addp v1.8h, v4.8h, v5.8h
	WORD $0x4e73be42 // addp v2.8h, v18.8h, v19.8h
	WORD $0x6e618400 // sub v0.8h, v0.8h, v1.8h
	WORD $0x6e618442 // sub v2.8h, v2.8h, v1.8h
	WORD $0x0f4ea003 // smull v3.4s, v0.4h, v14.h[0]
	WORD $0x4f4ea004 // smull2 v4.4s, v0.8h, v14.h[0]
	WORD $0x0f4fa005 // smull v5.4s, v0.4h, v15.h[0]
	WORD $0x4f4fa006 // smull2 v6.4s, v0.8h, v15.h[0]
	WORD $0x0f6e2043 // smlal v3.4s, v2.4h, v14.h[2]
	WORD $0x4f6e2044 // smlal2 v4.4s, v2.8h, v14.h[2]
	WORD $0x0f6f2045 // smlal v5.4s, v2.4h, v15.h[2]
	WORD $0x4f6f2046 // smlal2 v6.4s, v2.8h, v15.h[2]
	WORD $0x0e704063 // addhn v3.4h, v3.4s, v16.4s
	WORD $0x4e704083 // addhn2 v3.8h, v4.4s, v16.4s
	WORD $0x0e7040a5 // addhn v5.4h, v5.4s, v16.4s
	WORD $0x4e7040c5 // addhn2 v5.8h, v6.4s, v16.4s
	WORD $0x6e714463 // ushl v3.8h, v3.8h, v17.8h
	WORD $0x6e7144a5 // ushl v5.8h, v5.8h, v17.8h
	TBZ  $0, R10, pairs
	WORD $0x0e212863 // xtn v3.8b, v3.8h
	WORD $0x0e2128a5 // xtn v5.8b, v5.8h
	WORD $0xfc008403 // str d3, [x0], #8
	WORD $0xfc008525 // str d5, [x9], #8
	SUBS $16, R4
	BGT  loop
	RET

pairs:
	WORD $0x6f1854a3 // sli v3.8h, v5.8h, #8
	WORD $0x3c810403 // str q3, [x0], #16
	SUBS $16, R4
	BGT  loop
	RET
