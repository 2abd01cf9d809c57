// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// Kernels of sharpen.go and uyvpGo for NEON, written as those of kernels_arm64.s.

// func detailNEON(dst, red, green, blue *uint16, n int)
TEXT ·detailNEON(SB), NOSPLIT, $0-40
	MOVD dst+0(FP), R0
	MOVD red+8(FP), R1
	MOVD green+16(FP), R2
	MOVD blue+24(FP), R3
	MOVD n+32(FP), R4

loop:
	WORD $0x3cc10420 // ldr q0, [x1], #16
	WORD $0x3cc10441 // ldr q1, [x2], #16
	WORD $0x3cc10462 // ldr q2, [x3], #16
	WORD $0x4f115421 // shl v1.8h, v1.8h, #1
	WORD $0x4e628400 // add v0.8h, v0.8h, v2.8h
	WORD $0x4e618400 // add v0.8h, v0.8h, v1.8h
	WORD $0x6f1e2400 // urshr v0.8h, v0.8h, #2
	WORD $0x3c810400 // str q0, [x0], #16
	SUBS $8, R4
	BGT loop
	RET

// func sharpenNEON(dst, src, y *[3]*uint16, n, s int)
TEXT ·sharpenNEON(SB), NOSPLIT, $0-40
	MOVD dst+0(FP), R9
	MOVD 0(R9), R0
	MOVD 8(R9), R1
	MOVD 16(R9), R2
	MOVD src+8(FP), R9
	MOVD 0(R9), R3
	MOVD 8(R9), R4
	MOVD 16(R9), R5
	MOVD y+16(FP), R9
	MOVD 0(R9), R6
	MOVD 8(R9), R7
	MOVD 16(R9), R8
	MOVD n+24(FP), R10
	MOVD s+32(FP), R11
	WORD $0x4e040d70 // dup v16.4s, w11
	WORD $0x4f00e411 // movi v17.16b, #0
	MOVD $4080, R11
	WORD $0x4e020d72 // dup v18.8h, w11

loop:
	WORD $0x3cdfe0e0 // ldur q0, [x7, #-2]
	WORD $0x3cdfe0c3 // ldur q3, [x6, #-2]
	WORD $0x3cdfe104 // ldur q4, [x8, #-2]
	WORD $0x4f115400 // shl v0.8h, v0.8h, #1
	WORD $0x4e648463 // add v3.8h, v3.8h, v4.8h
	WORD $0x4e638400 // add v0.8h, v0.8h, v3.8h
	WORD $0x3cc020e1 // ldur q1, [x7, #2]
	WORD $0x3cc020c3 // ldur q3, [x6, #2]
	WORD $0x3cc02104 // ldur q4, [x8, #2]
	WORD $0x4f115421 // shl v1.8h, v1.8h, #1
	WORD $0x4e648463 // add v3.8h, v3.8h, v4.8h
	WORD $0x4e638421 // add v1.8h, v1.8h, v3.8h
	WORD $0x3cc000e2 // ldur q2, [x7, #0]
	WORD $0x3cc000c3 // ldur q3, [x6, #0]
	WORD $0x3cc00104 // ldur q4, [x8, #0]
	WORD $0x4f115442 // shl v2.8h, v2.8h, #1
	WORD $0x4e648463 // add v3.8h, v3.8h, v4.8h
	WORD $0x4e638442 // add v2.8h, v2.8h, v3.8h
	WORD $0x4e618400 // add v0.8h, v0.8h, v1.8h
	WORD $0x4f115442 // shl v2.8h, v2.8h, #1
	WORD $0x3cc104e1 // ldr q1, [x7], #16
	WORD $0x910040c6 // add x6, x6, #16
	WORD $0x91004108 // add x8, x8, #16
	WORD $0x2f14a423 // ushll v3.4s, v1.4h, #4
	WORD $0x6f14a424 // ushll2 v4.4s, v1.8h, #4
	WORD $0x2e603063 // usubw v3.4s, v3.4s, v0.4h
	WORD $0x6e603084 // usubw2 v4.4s, v4.4s, v0.8h
	WORD $0x2e623063 // usubw v3.4s, v3.4s, v2.4h
	WORD $0x6e623084 // usubw2 v4.4s, v4.4s, v2.8h
	WORD $0x4eb09c63 // mul v3.4s, v3.4s, v16.4s
	WORD $0x4eb09c84 // mul v4.4s, v4.4s, v16.4s
	WORD $0x0f168c60 // rshrn v0.4h, v3.4s, #10
	WORD $0x4f168c80 // rshrn2 v0.8h, v4.4s, #10
	WORD $0x3cc10461 // ldr q1, [x3], #16
	WORD $0x4e608421 // add v1.8h, v1.8h, v0.8h
	WORD $0x4e716421 // smax v1.8h, v1.8h, v17.8h
	WORD $0x4e726c21 // smin v1.8h, v1.8h, v18.8h
	WORD $0x3c810401 // str q1, [x0], #16
	WORD $0x3cc10481 // ldr q1, [x4], #16
	WORD $0x4e608421 // add v1.8h, v1.8h, v0.8h
	WORD $0x4e716421 // smax v1.8h, v1.8h, v17.8h
	WORD $0x4e726c21 // smin v1.8h, v1.8h, v18.8h
	WORD $0x3c810421 // str q1, [x1], #16
	WORD $0x3cc104a1 // ldr q1, [x5], #16
	WORD $0x4e608421 // add v1.8h, v1.8h, v0.8h
	WORD $0x4e716421 // smax v1.8h, v1.8h, v17.8h
	WORD $0x4e726c21 // smin v1.8h, v1.8h, v18.8h
	WORD $0x3c810441 // str q1, [x2], #16
	SUBS $8, R10
	BGT loop
	RET

// func uyvpNEON(dst *byte, y, c *uint16, n int)
TEXT ·uyvpNEON(SB), NOSPLIT, $0-32
	MOVD dst+0(FP), R0
	MOVD y+8(FP), R1
	MOVD c+16(FP), R2
	MOVD n+24(FP), R3
	MOVD $0x0a0b0c0001020304, R4
	MOVD $0x8080808080800809, R5
	WORD $0x9e670090 // fmov d16, x4
	WORD $0x4e181cb0 // mov v16.d[1], x5

loop:
	WORD $0x3cc10420 // ldr q0, [x1], #16
	WORD $0x3cc10441 // ldr q1, [x2], #16
	WORD $0x2f1aa422 // ushll v2.4s, v1.4h, #10
	WORD $0x6f1aa423 // ushll2 v3.4s, v1.8h, #10
	WORD $0x2e601042 // uaddw v2.4s, v2.4s, v0.4h
	WORD $0x6e601063 // uaddw2 v3.4s, v3.4s, v0.8h
	WORD $0x4f605444 // shl v4.2d, v2.2d, #32
	WORD $0x4f605465 // shl v5.2d, v3.2d, #32
	WORD $0x6f740484 // ushr v4.2d, v4.2d, #12
	WORD $0x6f7404a5 // ushr v5.2d, v5.2d, #12
	WORD $0x6f601444 // usra v4.2d, v2.2d, #32
	WORD $0x6f601465 // usra v5.2d, v3.2d, #32
	WORD $0x4e100084 // tbl v4.16b, {v4.16b}, v16.16b
	WORD $0x4e1000a5 // tbl v5.16b, {v5.16b}, v16.16b
	WORD $0x3d800004 // str q4, [x0]
	WORD $0x3c80a005 // stur q5, [x0, #10]
	WORD $0x91005000 // add x0, x0, #20
	SUBS $8, R3
	BGT loop
	RET
