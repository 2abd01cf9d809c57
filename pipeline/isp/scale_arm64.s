// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// Kernels of scale.go for NEON, written as those of kernels_arm64.s.

// func halfNEON(even, green, odd, a, b *uint16, n int)
TEXT ·halfNEON(SB), NOSPLIT, $0-48
	MOVD even+0(FP), R0
	MOVD green+8(FP), R1
	MOVD odd+16(FP), R2
	MOVD a+24(FP), R3
	MOVD b+32(FP), R4
	MOVD n+40(FP), R5

loop:
	WORD $0xacc10460 // ldp q0, q1, [x3], #32
	WORD $0xacc10c82 // ldp q2, q3, [x4], #32
	WORD $0x4e411804 // uzp1 v4.8h, v0.8h, v1.8h
	WORD $0x4e415800 // uzp2 v0.8h, v0.8h, v1.8h
	WORD $0x4e431841 // uzp1 v1.8h, v2.8h, v3.8h
	WORD $0x4e435842 // uzp2 v2.8h, v2.8h, v3.8h
	WORD $0x6e611400 // urhadd v0.8h, v0.8h, v1.8h
	WORD $0x3c810404 // str q4, [x0], #16
	WORD $0x3c810420 // str q0, [x1], #16
	WORD $0x3c810442 // str q2, [x2], #16
	SUBS $8, R5
	BGT  loop
	RET

// func halfMonoNEON(dst, a, b *uint16, n int)
TEXT ·halfMonoNEON(SB), NOSPLIT, $0-32
	MOVD dst+0(FP), R0
	MOVD a+8(FP), R1
	MOVD b+16(FP), R2
	MOVD n+24(FP), R3

loop:
	WORD $0xacc10420 // ldp q0, q1, [x1], #32
	WORD $0xacc10c42 // ldp q2, q3, [x2], #32
	WORD $0x4e628400 // add v0.8h, v0.8h, v2.8h
	WORD $0x4e638421 // add v1.8h, v1.8h, v3.8h
	WORD $0x4e61bc00 // addp v0.8h, v0.8h, v1.8h
	WORD $0x6f1e2400 // urshr v0.8h, v0.8h, #2
	WORD $0x3c810400 // str q0, [x0], #16
	SUBS $8, R3
	BGT  loop
	RET

// func quarterNEON(even, green, odd *uint16, lines *[4]*uint16, n int)
TEXT ·quarterNEON(SB), NOSPLIT, $0-40
	MOVD even+0(FP), R0
	MOVD green+8(FP), R1
	MOVD odd+16(FP), R2
	MOVD lines+24(FP), R8
	MOVD n+32(FP), R7
	LDP  0(R8), (R3, R4)
	LDP  16(R8), (R5, R6)

loop:
	WORD $0x4cdf0460 // ld4 {v0.8h-v3.8h}, [x3], #64
	WORD $0x4cdf0484 // ld4 {v4.8h-v7.8h}, [x4], #64
	WORD $0x4cdf04b0 // ld4 {v16.8h-v19.8h}, [x5], #64
	WORD $0x4cdf04d4 // ld4 {v20.8h-v23.8h}, [x6], #64
	WORD $0x4e628400 // add v0.8h, v0.8h, v2.8h
	WORD $0x4e638421 // add v1.8h, v1.8h, v3.8h
	WORD $0x4e668484 // add v4.8h, v4.8h, v6.8h
	WORD $0x4e6784a5 // add v5.8h, v5.8h, v7.8h
	WORD $0x4e728610 // add v16.8h, v16.8h, v18.8h
	WORD $0x4e738631 // add v17.8h, v17.8h, v19.8h
	WORD $0x4e768694 // add v20.8h, v20.8h, v22.8h
	WORD $0x4e7786b5 // add v21.8h, v21.8h, v23.8h
	WORD $0x4e648400 // add v0.8h, v0.8h, v4.8h
	WORD $0x4e658421 // add v1.8h, v1.8h, v5.8h
	WORD $0x4e748610 // add v16.8h, v16.8h, v20.8h
	WORD $0x4e758631 // add v17.8h, v17.8h, v21.8h
	WORD $0x6e700421 // uhadd v1.8h, v1.8h, v16.8h
	WORD $0x6f1e2400 // urshr v0.8h, v0.8h, #2
	WORD $0x6f1e2421 // urshr v1.8h, v1.8h, #2
	WORD $0x6f1e2631 // urshr v17.8h, v17.8h, #2
	WORD $0x3c810400 // str q0, [x0], #16
	WORD $0x3c810421 // str q1, [x1], #16
	WORD $0x3c810451 // str q17, [x2], #16
	SUBS $8, R7
	BGT  loop
	RET

// func quarterMonoNEON(dst *uint16, lines *[4]*uint16, n int)
TEXT ·quarterMonoNEON(SB), NOSPLIT, $0-24
	MOVD dst+0(FP), R0
	MOVD lines+8(FP), R8
	MOVD n+16(FP), R7
	LDP  0(R8), (R3, R4)
	LDP  16(R8), (R5, R6)

loop:
	WORD $0xacc10460 // ldp q0, q1, [x3], #32
	WORD $0xacc10c82 // ldp q2, q3, [x4], #32
	WORD $0xacc114a4 // ldp q4, q5, [x5], #32
	WORD $0xacc11cc6 // ldp q6, q7, [x6], #32
	WORD $0x4e628400 // add v0.8h, v0.8h, v2.8h
	WORD $0x4e638421 // add v1.8h, v1.8h, v3.8h
	WORD $0x4e668484 // add v4.8h, v4.8h, v6.8h
	WORD $0x4e6784a5 // add v5.8h, v5.8h, v7.8h
	WORD $0x4e648400 // add v0.8h, v0.8h, v4.8h
	WORD $0x4e658421 // add v1.8h, v1.8h, v5.8h
	WORD $0x6e602800 // uaddlp v0.4s, v0.8h
	WORD $0x6e602821 // uaddlp v1.4s, v1.8h
	WORD $0x4ea1bc00 // addp v0.4s, v0.4s, v1.4s
	WORD $0x0f1c8c00 // rshrn v0.4h, v0.4s, #4
	WORD $0xfc008400 // str d0, [x0], #8
	SUBS $4, R7
	BGT  loop
	RET
