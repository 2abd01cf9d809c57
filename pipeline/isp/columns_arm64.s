// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// Kernels of columns.go for NEON, written as those of kernels_arm64.s.

// func columnsNEON(even, odd *uint16, src *byte, n int, a *columnsArgs)
TEXT ·columnsNEON(SB), NOSPLIT, $0-40
	MOVD even+0(FP), R0
	MOVD odd+8(FP), R1
	MOVD src+16(FP), R2
	MOVD n+24(FP), R3
	MOVD a+32(FP), R4
	WORD $0x4d40c490 // ld1r {v16.8h}, [x4]
	WORD $0x79400885 // ldrh w5, [x4, #4]
	WORD $0x4e020cb1 // dup v17.8h, w5
	WORD $0x79400c85 // ldrh w5, [x4, #6]
	WORD $0x4e020cb2 // dup v18.8h, w5
	WORD $0x79401085 // ldrh w5, [x4, #8]
	WORD $0x4e020cb3 // dup v19.8h, w5
	WORD $0x79401885 // ldrh w5, [x4, #12]
	WORD $0x4e020cb4 // dup v20.8h, w5
	WORD $0xb9401885 // ldr w5, [x4, #24]
	WORD $0x4e040cb5 // dup v21.4s, w5
	WORD $0xb9401c85 // ldr w5, [x4, #28]
	WORD $0x4e040cb6 // dup v22.4s, w5
	WORD $0x6ea0bab5 // neg v21.4s, v21.4s
	WORD $0x6ea0bad6 // neg v22.4s, v22.4s
	WORD $0x6f06a417 // mvni v23.8h, #0xc0, lsl #8

loop:
	WORD $0x4cdf8440 // ld2 {v0.8h, v1.8h}, [x2], #32
	WORD $0x4e301c00 // and v0.16b, v0.16b, v16.16b
	WORD $0x4e301c21 // and v1.16b, v1.16b, v16.16b
	WORD $0x6e712c00 // uqsub v0.8h, v0.8h, v17.8h
	WORD $0x6e722c21 // uqsub v1.8h, v1.8h, v18.8h
	WORD $0x2e73c002 // umull v2.4s, v0.4h, v19.4h
	WORD $0x6e73c003 // umull2 v3.4s, v0.8h, v19.8h
	WORD $0x2e74c024 // umull v4.4s, v1.4h, v20.4h
	WORD $0x6e74c025 // umull2 v5.4s, v1.8h, v20.8h
	WORD $0x6eb55442 // urshl v2.4s, v2.4s, v21.4s
	WORD $0x6eb55463 // urshl v3.4s, v3.4s, v21.4s
	WORD $0x6eb65484 // urshl v4.4s, v4.4s, v22.4s
	WORD $0x6eb654a5 // urshl v5.4s, v5.4s, v22.4s
	WORD $0x2e614840 // uqxtn v0.4h, v2.4s
	WORD $0x6e614860 // uqxtn2 v0.8h, v3.4s
	WORD $0x2e614881 // uqxtn v1.4h, v4.4s
	WORD $0x6e6148a1 // uqxtn2 v1.8h, v5.4s
	WORD $0x6e776c00 // umin v0.8h, v0.8h, v23.8h
	WORD $0x6e776c21 // umin v1.8h, v1.8h, v23.8h
	WORD $0x3c810400 // str q0, [x0], #16
	WORD $0x3c810421 // str q1, [x1], #16
	SUBS $16, R3
	BGT  loop
	RET

// CODE makes bytes in V0 out of four times the linear samples, those of pixels with the own colour in V0, of the others in
// V1; they come in pairs of one and the other. It changes V1 to V7.
#define CODE \
	WORD $0x4e016802 /* trn2 v2.16b, v0.16b, v1.16b */ \
	/* sample >> 6 */ \
	WORD $0x6f0c0447 /* ushr v7.16b, v2.16b, #4 */ \
	WORD $0x6e3d1443 /* urhadd v3.16b, v2.16b, v29.16b */ \
	/* (sample >> 7) + 8 */ \
	WORD $0x6e236c42 /* umin v2.16b, v2.16b, v3.16b */ \
	WORD $0x6e3e1463 /* urhadd v3.16b, v3.16b, v30.16b */ \
	WORD $0x6e3f1463 /* urhadd v3.16b, v3.16b, v31.16b */ \
	/* (sample >> 9) + 32 */ \
	WORD $0x6e236c42 /* umin v2.16b, v2.16b, v3.16b */ \
	WORD $0x4e026204 /* tbl v4.16b, {v16.16b-v19.16b}, v2.16b */ \
	WORD $0x4e026285 /* tbl v5.16b, {v20.16b-v23.16b}, v2.16b */ \
	WORD $0x4e026306 /* tbl v6.16b, {v24.16b-v27.16b}, v2.16b */ \
	WORD $0x4e070387 /* tbl v7.16b, {v28.16b}, v7.16b */ \
	WORD $0x6f1804e3 /* ushr v3.8h, v7.8h, #8 */ \
	WORD $0x6f07b7e7 /* bic v7.8h, #0xff, lsl #8 */ \
	WORD $0x4e679c00 /* mul v0.8h, v0.8h, v7.8h */ \
	WORD $0x4e639c21 /* mul v1.8h, v1.8h, v3.8h */ \
	WORD $0x6f1804c3 /* ushr v3.8h, v6.8h, #8 */ \
	WORD $0x6f07b7e6 /* bic v6.8h, #0xff, lsl #8 */ \
	WORD $0x6e66b400 /* sqrdmulh v0.8h, v0.8h, v6.8h */ \
	WORD $0x6e63b421 /* sqrdmulh v1.8h, v1.8h, v3.8h */ \
	WORD $0x4e012800 /* trn1 v0.16b, v0.16b, v1.16b */ \
	WORD $0x4e258400 /* add v0.16b, v0.16b, v5.16b */ \
	WORD $0x6f0c0400 /* ushr v0.16b, v0.16b, #4 */ \
	WORD $0x4e248400 /* add v0.16b, v0.16b, v4.16b */

// func colorsNEON(dst *byte, in *colorsLines, n, odd, blue int, c *byteCurve)
TEXT ·colorsNEON(SB), NOSPLIT, $0-48
	MOVD dst+0(FP), R0
	MOVD in+8(FP), R1
	MOVD 0(R1), R6
	MOVD 8(R1), R7
	MOVD 16(R1), R8
	MOVD 24(R1), R9
	MOVD 32(R1), R10
	MOVD 40(R1), R11
	MOVD n+16(FP), R2
	MOVD odd+24(FP), R3
	MOVD blue+32(FP), R4
	MOVD c+40(FP), R5
	WORD $0x4cdf20b0 // ld1 {v16.16b-v19.16b}, [x5], #64
	WORD $0x4cdf20b4 // ld1 {v20.16b-v23.16b}, [x5], #64
	WORD $0x4cdf20b8 // ld1 {v24.16b-v27.16b}, [x5], #64
	WORD $0x910400a5 // add x5, x5, #256
	WORD $0x4c4070bc // ld1 {v28.16b}, [x5]
	WORD $0x4f00e5fd // movi v29.16b, #15
	WORD $0x4f01e6fe // movi v30.16b, #55
	WORD $0x4f00e7ff // movi v31.16b, #31
	SUB R3<<1, R6, R12 // own colour left of a green pixel
	LSL $1, R3, R5
	SUB $2, R5         // green left of a pixel of the own colour
	ADD R5, R7, R13
	ADD R5, R9, R14
	ADD R5, R11, R15

loop:
	WORD $0x3cc104c0 // ldr q0, [x6], #16
	WORD $0x3cc02182 // ldur q2, [x12, #2]
	WORD $0x3cc10581 // ldr q1, [x12], #16
	WORD $0x6e621421 // urhadd v1.8h, v1.8h, v2.8h
	WORD $0x4f125400 // shl v0.8h, v0.8h, #2
	WORD $0x4f125421 // shl v1.8h, v1.8h, #2
	CODE
	WORD $0x4ea01c0a // mov v10.16b, v0.16b
	WORD $0x3cc021a2 // ldur q2, [x13, #2]
	WORD $0x3cc105a0 // ldr q0, [x13], #16
	WORD $0x3cc10503 // ldr q3, [x8], #16
	WORD $0x3cc10544 // ldr q4, [x10], #16
	WORD $0x4e628400 // add v0.8h, v0.8h, v2.8h
	WORD $0x4e648463 // add v3.8h, v3.8h, v4.8h
	WORD $0x3cc104e1 // ldr q1, [x7], #16
	WORD $0x4e638400 // add v0.8h, v0.8h, v3.8h
	WORD $0x6f1e2400 // urshr v0.8h, v0.8h, #2
	WORD $0x4f125421 // shl v1.8h, v1.8h, #2
	WORD $0x4f125400 // shl v0.8h, v0.8h, #2
	CODE
	WORD $0x4ea01c0b // mov v11.16b, v0.16b
	WORD $0x3cc021c2 // ldur q2, [x14, #2]
	WORD $0x3cc105c0 // ldr q0, [x14], #16
	WORD $0x3cc021e4 // ldur q4, [x15, #2]
	WORD $0x3cc105e3 // ldr q3, [x15], #16
	WORD $0x4e628400 // add v0.8h, v0.8h, v2.8h
	WORD $0x4e648463 // add v3.8h, v3.8h, v4.8h
	WORD $0x3cc10521 // ldr q1, [x9], #16
	WORD $0x3cc10565 // ldr q5, [x11], #16
	WORD $0x4e638400 // add v0.8h, v0.8h, v3.8h
	WORD $0x6e651421 // urhadd v1.8h, v1.8h, v5.8h
	WORD $0x6f1e2400 // urshr v0.8h, v0.8h, #2
	WORD $0x4f125421 // shl v1.8h, v1.8h, #2
	WORD $0x4f125400 // shl v0.8h, v0.8h, #2
	CODE
	WORD $0x4ea01c0c // mov v12.16b, v0.16b
	CBZ R3, ordered
	WORD $0x4e20194a // rev16 v10.16b, v10.16b
	WORD $0x4e20196b // rev16 v11.16b, v11.16b
	WORD $0x4e20198c // rev16 v12.16b, v12.16b

ordered:
	CBNZ R4, blue
	WORD $0x4c9f400a // st3 {v10.16b, v11.16b, v12.16b}, [x0], #48
	SUBS $16, R2
	BGT  loop
	RET

blue:
	WORD $0x4eab1d6d // mov v13.16b, v11.16b
	WORD $0x4eaa1d4e // mov v14.16b, v10.16b
	WORD $0x4c9f400c // st3 {v12.16b, v13.16b, v14.16b}, [x0], #48
	SUBS $16, R2
	BGT  loop
	RET
