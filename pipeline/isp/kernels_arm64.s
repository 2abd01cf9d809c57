// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// Kernels for NEON. Go's assembler lacks most of the integer instructions, so they stand here as words, with what they
// are behind them.

// func blackNEON(dst *uint16, src *byte, n int, a *blackArgs)
TEXT ·blackNEON(SB), NOSPLIT, $0-32
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD n+16(FP), R2
	MOVD a+24(FP), R3
	WORD $0x4ddfc470 // ld1r {v16.8h}, [x3], #2
	WORD $0x4ddfc471 // ld1r {v17.8h}, [x3], #2
	WORD $0x4d40c872 // ld1r {v18.4s}, [x3]

loop:
	WORD $0x4cdf7420 // ld1 {v0.8h}, [x1], #16
	WORD $0x4e301c00 // and v0.16b, v0.16b, v16.16b
	WORD $0x6e722c00 // uqsub v0.8h, v0.8h, v18.8h
	WORD $0x6e714400 // ushl v0.8h, v0.8h, v17.8h
	WORD $0x4c9f7400 // st1 {v0.8h}, [x0], #16
	SUBS $8, R2
	BGT  loop
	RET

// func gainNEON(dst, src *uint16, n int, a *gainArgs)
TEXT ·gainNEON(SB), NOSPLIT, $0-32
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD n+16(FP), R2
	MOVD a+24(FP), R3
	WORD $0x4ddfc870 // ld1r {v16.4s}, [x3], #4
	WORD $0x4d40cc71 // ld1r {v17.2d}, [x3]
	WORD $0x6ea0ba31 // neg v17.4s, v17.4s
	WORD $0x6f06a412 // mvni v18.8h, #0xc0, lsl #8

loop:
	WORD $0x4cdf7420 // ld1 {v0.8h}, [x1], #16
	WORD $0x2e70c001 // umull v1.4s, v0.4h, v16.4h
	WORD $0x6e70c002 // umull2 v2.4s, v0.8h, v16.8h
	WORD $0x6eb15421 // urshl v1.4s, v1.4s, v17.4s
	WORD $0x6eb15442 // urshl v2.4s, v2.4s, v17.4s
	WORD $0x2e614823 // uqxtn v3.4h, v1.4s
	WORD $0x6e614843 // uqxtn2 v3.8h, v2.4s
	WORD $0x6e726c63 // umin v3.8h, v3.8h, v18.8h
	WORD $0x4c9f7403 // st1 {v3.8h}, [x0], #16
	SUBS $8, R2
	BGT  loop
	RET

// func linearNEON(dst *uint16, src *byte, n int, k *blackArgs, m *[2]uint16, shift *[2]int16)
TEXT ·linearNEON(SB), NOSPLIT, $0-48
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD n+16(FP), R2
	MOVD k+24(FP), R3
	MOVD m+32(FP), R4
	MOVD shift+40(FP), R5
	WORD $0x4d40c470 // ld1r {v16.8h}, [x3]
	ADD  $4, R3
	WORD $0x4d40c871 // ld1r {v17.4s}, [x3]
	WORD $0x4d40c892 // ld1r {v18.4s}, [x4]
	WORD $0x4d40c8b3 // ld1r {v19.4s}, [x5]
	WORD $0x6f06a414 // mvni v20.8h, #0xc0, lsl #8

loop:
	WORD $0xacc10420 // ldp q0, q1, [x1], #32
	WORD $0x4e301c00 // and v0.16b, v0.16b, v16.16b
	WORD $0x4e301c21 // and v1.16b, v1.16b, v16.16b
	WORD $0x6e712c00 // uqsub v0.8h, v0.8h, v17.8h
	WORD $0x6e712c21 // uqsub v1.8h, v1.8h, v17.8h
	WORD $0x4e734c00 // sqshl v0.8h, v0.8h, v19.8h
	WORD $0x4e734c21 // sqshl v1.8h, v1.8h, v19.8h
	WORD $0x6e72b400 // sqrdmulh v0.8h, v0.8h, v18.8h
	WORD $0x6e72b421 // sqrdmulh v1.8h, v1.8h, v18.8h
	WORD $0x6e746c00 // umin v0.8h, v0.8h, v20.8h
	WORD $0x6e746c21 // umin v1.8h, v1.8h, v20.8h
	WORD $0xac810400 // stp q0, q1, [x0], #32
	SUBS $16, R2
	BGT  loop
	RET

// func suspectsNEON(dst, up, mid, down *uint16, n, step int, threshold uint16) uint16
TEXT ·suspectsNEON(SB), NOSPLIT, $0-58
	MOVD  dst+0(FP), R0
	MOVD  up+8(FP), R1
	MOVD  mid+16(FP), R2
	MOVD  down+24(FP), R3
	MOVD  n+32(FP), R4
	MOVD  step+40(FP), R5
	MOVHU threshold+48(FP), R6
	LSL   $1, R5
	NEG   R5, R7
	WORD $0x4e020cd0 // dup v16.8h, w6
	WORD $0x4f00e411 // movi v17.16b, #0
	CBZ   R4, done

loop:
	WORD $0x3ce76840 // ldr q0, [x2, x7]
	WORD $0x3ce56841 // ldr q1, [x2, x5]
	WORD $0x6e616c02 // umin v2.8h, v0.8h, v1.8h
	WORD $0x6e616403 // umax v3.8h, v0.8h, v1.8h
	WORD $0x3ce76820 // ldr q0, [x1, x7]
	WORD $0x3dc00021 // ldr q1, [x1]
	WORD $0x3ce56824 // ldr q4, [x1, x5]
	WORD $0x6e606c42 // umin v2.8h, v2.8h, v0.8h
	WORD $0x6e606463 // umax v3.8h, v3.8h, v0.8h
	WORD $0x6e616c42 // umin v2.8h, v2.8h, v1.8h
	WORD $0x6e616463 // umax v3.8h, v3.8h, v1.8h
	WORD $0x6e646c42 // umin v2.8h, v2.8h, v4.8h
	WORD $0x6e646463 // umax v3.8h, v3.8h, v4.8h
	WORD $0x3ce76860 // ldr q0, [x3, x7]
	WORD $0x3dc00061 // ldr q1, [x3]
	WORD $0x3ce56864 // ldr q4, [x3, x5]
	WORD $0x6e606c42 // umin v2.8h, v2.8h, v0.8h
	WORD $0x6e606463 // umax v3.8h, v3.8h, v0.8h
	WORD $0x6e616c42 // umin v2.8h, v2.8h, v1.8h
	WORD $0x6e616463 // umax v3.8h, v3.8h, v1.8h
	WORD $0x6e646c42 // umin v2.8h, v2.8h, v4.8h
	WORD $0x6e646463 // umax v3.8h, v3.8h, v4.8h
	WORD $0x3dc00040 // ldr q0, [x2]
	WORD $0x6e632c03 // uqsub v3.8h, v0.8h, v3.8h
	WORD $0x6e602c42 // uqsub v2.8h, v2.8h, v0.8h
	WORD $0x6e702c63 // uqsub v3.8h, v3.8h, v16.8h
	WORD $0x6e702c42 // uqsub v2.8h, v2.8h, v16.8h
	WORD $0x4ea31c42 // orr v2.16b, v2.16b, v3.16b
	WORD $0x4ea21e31 // orr v17.16b, v17.16b, v2.16b
	WORD $0x3c810402 // str q2, [x0], #16
	ADD  $16, R1
	ADD  $16, R2
	ADD  $16, R3
	SUBS $8, R4
	BGT  loop

done:
	WORD $0x6e70aa31 // umaxv h17, v17.8h
	WORD $0x0e023e26 // umov w6, v17.h[0]
	MOVH R6, ret+56(FP)
	RET

// func bilinearNEON(own, green, other, up, mid, down *uint16, n int)
//
// The first pixel has the own colour. Vectors hold pixels with the own colour, or their right neighbours, which are green.
TEXT ·bilinearNEON(SB), NOSPLIT, $0-56
	MOVD own+0(FP), R0
	MOVD green+8(FP), R1
	MOVD other+16(FP), R2
	MOVD up+24(FP), R3
	MOVD mid+32(FP), R4
	MOVD down+40(FP), R5
	MOVD n+48(FP), R6
	ADD  $2, R4, R7
	SUB  $2, R4

loop:
	// green left of v1, the own colour, and the own colour right of v4, green
	WORD $0x4cdf8480 // ld2 {v0.8h, v1.8h}, [x4], #32
	WORD $0x4cdf84e4 // ld2 {v4.8h, v5.8h}, [x7], #32
	// N+S left of the own colour in v18, at it in v19, right of it, at green, in v7
	WORD $0x3cdfe070 // ldur q16, [x3, #-2]
	WORD $0x3cc0e071 // ldur q17, [x3, #14]
	WORD $0x3cdfe0b2 // ldur q18, [x5, #-2]
	WORD $0x3cc0e0b3 // ldur q19, [x5, #14]
	WORD $0x4e728610 // add v16.8h, v16.8h, v18.8h
	WORD $0x4e738631 // add v17.8h, v17.8h, v19.8h
	WORD $0x4e511a12 // uzp1 v18.8h, v16.8h, v17.8h
	WORD $0x4e515a13 // uzp2 v19.8h, v16.8h, v17.8h
	WORD $0x3cc02066 // ldur q6, [x3, #2]
	WORD $0x3cc12067 // ldur q7, [x3, #18]
	WORD $0x3cc020b0 // ldur q16, [x5, #2]
	WORD $0x3cc120b1 // ldur q17, [x5, #18]
	WORD $0x4e7084c6 // add v6.8h, v6.8h, v16.8h
	WORD $0x4e7184e7 // add v7.8h, v7.8h, v17.8h
	WORD $0x4e4718c7 // uzp1 v7.8h, v6.8h, v7.8h
	WORD $0x6e651422 // urhadd v2.8h, v1.8h, v5.8h
	WORD $0x4e648403 // add v3.8h, v0.8h, v4.8h
	WORD $0x4e738463 // add v3.8h, v3.8h, v19.8h
	WORD $0x4e678646 // add v6.8h, v18.8h, v7.8h
	WORD $0x6f1e2463 // urshr v3.8h, v3.8h, #2
	WORD $0x6f1e24c6 // urshr v6.8h, v6.8h, #2
	WORD $0x6f1f24e7 // urshr v7.8h, v7.8h, #1
	WORD $0x4c9f8401 // st2 {v1.8h, v2.8h}, [x0], #32
	WORD $0x4c9f8423 // st2 {v3.8h, v4.8h}, [x1], #32
	WORD $0x4c9f8446 // st2 {v6.8h, v7.8h}, [x2], #32
	ADD  $32, R3
	ADD  $32, R5
	SUBS $16, R6
	BGT  loop
	RET

// func malvarNEON(own, green, other *uint16, rows *[5]*uint16, n int)
//
// The first pixel has the own colour. Vectors hold pixels of one kind: of two with the same name, "o" has pixels with the
// own colour, "g" their right neighbours, which are green. Sums are those of malvarGo. Halving adds and subtractions, which
// lose no carry, keep everything within 16 bits:
//
//	green = (((h1o+v1o-(h2o+v2o+1)/2)/2 + co + 1)/2
//	third = (do + (3co+2 + (h2o+v2o)/4) - (h2o+v2o))/4
//	own   = (h1g + cg + (cg+v2g/2-h2g-dg)/4 + 1)/2, and the third colour with h and v exchanged
TEXT ·malvarNEON(SB), NOSPLIT, $0-40
	MOVD own+0(FP), R0
	MOVD green+8(FP), R1
	MOVD other+16(FP), R2
	MOVD rows+24(FP), R3
	MOVD 0(R3), R4
	MOVD 8(R3), R5
	MOVD 16(R3), R6
	MOVD 24(R3), R7
	MOVD 32(R3), R8
	MOVD n+32(FP), R9
	SUB  $4, R6, R10
	ADD  $4, R6, R11
	WORD $0x4f00e41b // movi v27.16b, #0
	WORD $0x6f06a41c // mvni v28.8h, #0xc0, lsl #8
	WORD $0x4f00845d // movi v29.8h, #2
	WORD $0x4f04a41e // movi v30.8h, #0x80, lsl #8
	WORD $0x4f07a41f // movi v31.8h, #0xe0, lsl #8

loop:
	WORD $0x4cdf8540 // ld2 {v0.8h, v1.8h}, [x10], #32
	WORD $0x4cdf84c2 // ld2 {v2.8h, v3.8h}, [x6], #32
	WORD $0x4cdf8564 // ld2 {v4.8h, v5.8h}, [x11], #32
	WORD $0x4e638426 // add v6.8h, v1.8h, v3.8h
	WORD $0x4e648447 // add v7.8h, v2.8h, v4.8h
	WORD $0x4e648400 // add v0.8h, v0.8h, v4.8h
	WORD $0x4e658421 // add v1.8h, v1.8h, v5.8h
	WORD $0x3cdfe0a4 // ldur q4, [x5, #-2]
	WORD $0x3cc0e0a5 // ldur q5, [x5, #14]
	WORD $0x3cdfe0f0 // ldur q16, [x7, #-2]
	WORD $0x3cc0e0f1 // ldur q17, [x7, #14]
	WORD $0x4e708484 // add v4.8h, v4.8h, v16.8h
	WORD $0x4e7184a5 // add v5.8h, v5.8h, v17.8h
	WORD $0x4e451890 // uzp1 v16.8h, v4.8h, v5.8h
	WORD $0x4e455891 // uzp2 v17.8h, v4.8h, v5.8h
	WORD $0x3cc020a4 // ldur q4, [x5, #2]
	WORD $0x3cc120a5 // ldur q5, [x5, #18]
	WORD $0x3cc020f2 // ldur q18, [x7, #2]
	WORD $0x3cc120f3 // ldur q19, [x7, #18]
	WORD $0x4e728484 // add v4.8h, v4.8h, v18.8h
	WORD $0x4e7384a5 // add v5.8h, v5.8h, v19.8h
	WORD $0x4e451892 // uzp1 v18.8h, v4.8h, v5.8h
	WORD $0x4e455893 // uzp2 v19.8h, v4.8h, v5.8h
	WORD $0xacc11484 // ldp q4, q5, [x4], #32
	WORD $0xacc15514 // ldp q20, q21, [x8], #32
	WORD $0x4e748484 // add v4.8h, v4.8h, v20.8h
	WORD $0x4e7584a5 // add v5.8h, v5.8h, v21.8h
	WORD $0x4e451894 // uzp1 v20.8h, v4.8h, v5.8h
	WORD $0x4e455895 // uzp2 v21.8h, v4.8h, v5.8h
	WORD $0x4e728610 // add v16.8h, v16.8h, v18.8h
	WORD $0x4e718673 // add v19.8h, v19.8h, v17.8h
	// now h1o is in v6, h1g in v7, h2o in v0, h2g in v1, v1o in v17, v1g in v18, v2o in v20, v2g in v21, do in v16, dg in v19
	WORD $0x4e7184c6 // add v6.8h, v6.8h, v17.8h
	WORD $0x6e741404 // urhadd v4.8h, v0.8h, v20.8h
	WORD $0x6e6424c6 // uhsub v6.8h, v6.8h, v4.8h
	WORD $0x4e6214d6 // srhadd v22.8h, v6.8h, v2.8h
	WORD $0x4e7b66d6 // smax v22.8h, v22.8h, v27.8h
	WORD $0x4e7c6ed6 // smin v22.8h, v22.8h, v28.8h
	WORD $0x4ea31c77 // mov v23.16b, v3.16b
	WORD $0x4c9f8436 // st2 {v22.8h, v23.8h}, [x1], #32
	WORD $0x4e748404 // add v4.8h, v0.8h, v20.8h
	WORD $0x4e628445 // add v5.8h, v2.8h, v2.8h
	WORD $0x4e6284a5 // add v5.8h, v5.8h, v2.8h
	WORD $0x4e7d84a5 // add v5.8h, v5.8h, v29.8h
	WORD $0x6f1e1485 // usra v5.8h, v4.8h, #2
	WORD $0x6e642ca6 // uqsub v6.8h, v5.8h, v4.8h
	WORD $0x6e652c84 // uqsub v4.8h, v4.8h, v5.8h
	WORD $0x6e660e10 // uqadd v16.8h, v16.8h, v6.8h
	WORD $0x6e642e10 // uqsub v16.8h, v16.8h, v4.8h
	WORD $0x6f1e0618 // ushr v24.8h, v16.8h, #2
	WORD $0x6e3e1c65 // eor v5.16b, v3.16b, v30.16b
	WORD $0x6e6184a4 // sub v4.8h, v5.8h, v1.8h
	WORD $0x6e7584a5 // sub v5.8h, v5.8h, v21.8h
	WORD $0x6f1f16a4 // usra v4.8h, v21.8h, #1
	WORD $0x6f1f1425 // usra v5.8h, v1.8h, #1
	WORD $0x6e732484 // uhsub v4.8h, v4.8h, v19.8h
	WORD $0x6e7324a5 // uhsub v5.8h, v5.8h, v19.8h
	WORD $0x4e7f8466 // add v6.8h, v3.8h, v31.8h
	WORD $0x4e7f8470 // add v16.8h, v3.8h, v31.8h
	WORD $0x4f1f1486 // ssra v6.8h, v4.8h, #1
	WORD $0x4f1f14b0 // ssra v16.8h, v5.8h, #1
	WORD $0x4e6614e3 // srhadd v3.8h, v7.8h, v6.8h
	WORD $0x4e701659 // srhadd v25.8h, v18.8h, v16.8h
	WORD $0x4e7b6463 // smax v3.8h, v3.8h, v27.8h
	WORD $0x4e7b6739 // smax v25.8h, v25.8h, v27.8h
	WORD $0x4e7c6c63 // smin v3.8h, v3.8h, v28.8h
	WORD $0x4e7c6f39 // smin v25.8h, v25.8h, v28.8h
	WORD $0x4c9f8402 // st2 {v2.8h, v3.8h}, [x0], #32
	WORD $0x4c9f8458 // st2 {v24.8h, v25.8h}, [x2], #32
	ADD  $32, R5
	ADD  $32, R7
	SUBS $16, R9
	BGT  loop
	RET

// func matrixNEON(red, green, blue *uint16, n int, m *[9]int16)
TEXT ·matrixNEON(SB), NOSPLIT, $0-40
	MOVD red+0(FP), R0
	MOVD green+8(FP), R1
	MOVD blue+16(FP), R2
	MOVD n+24(FP), R3
	MOVD m+32(FP), R4
	WORD $0x4cdf748e // ld1 {v14.8h}, [x4], #16
	WORD $0x0d40408f // ld1 {v15.h}[0], [x4]
	WORD $0x6f06a410 // mvni v16.8h, #0xc0, lsl #8

loop:
	WORD $0x3dc00000 // ldr q0, [x0]
	WORD $0x3dc00021 // ldr q1, [x1]
	WORD $0x3dc00042 // ldr q2, [x2]
	WORD $0x0f4ea003 // smull v3.4s, v0.4h, v14.h[0]
	WORD $0x4f4ea004 // smull2 v4.4s, v0.8h, v14.h[0]
	WORD $0x0f5e2023 // smlal v3.4s, v1.4h, v14.h[1]
	WORD $0x4f5e2024 // smlal2 v4.4s, v1.8h, v14.h[1]
	WORD $0x0f6e2043 // smlal v3.4s, v2.4h, v14.h[2]
	WORD $0x4f6e2044 // smlal2 v4.4s, v2.8h, v14.h[2]
	WORD $0x0f7ea005 // smull v5.4s, v0.4h, v14.h[3]
	WORD $0x4f7ea006 // smull2 v6.4s, v0.8h, v14.h[3]
	WORD $0x0f4e2825 // smlal v5.4s, v1.4h, v14.h[4]
	WORD $0x4f4e2826 // smlal2 v6.4s, v1.8h, v14.h[4]
	WORD $0x0f5e2845 // smlal v5.4s, v2.4h, v14.h[5]
	WORD $0x4f5e2846 // smlal2 v6.4s, v2.8h, v14.h[5]
	WORD $0x0f6ea807 // smull v7.4s, v0.4h, v14.h[6]
	WORD $0x4f6ea811 // smull2 v17.4s, v0.8h, v14.h[6]
	WORD $0x0f7e2827 // smlal v7.4s, v1.4h, v14.h[7]
	WORD $0x4f7e2831 // smlal2 v17.4s, v1.8h, v14.h[7]
	WORD $0x0f4f2047 // smlal v7.4s, v2.4h, v15.h[0]
	WORD $0x4f4f2051 // smlal2 v17.4s, v2.8h, v15.h[0]
	WORD $0x2f148c63 // sqrshrun v3.4h, v3.4s, #12
	WORD $0x6f148c83 // sqrshrun2 v3.8h, v4.4s, #12
	WORD $0x2f148ca5 // sqrshrun v5.4h, v5.4s, #12
	WORD $0x6f148cc5 // sqrshrun2 v5.8h, v6.4s, #12
	WORD $0x2f148ce7 // sqrshrun v7.4h, v7.4s, #12
	WORD $0x6f148e27 // sqrshrun2 v7.8h, v17.4s, #12
	WORD $0x6e706c63 // umin v3.8h, v3.8h, v16.8h
	WORD $0x6e706ca5 // umin v5.8h, v5.8h, v16.8h
	WORD $0x6e706ce7 // umin v7.8h, v7.8h, v16.8h
	WORD $0x3c810403 // str q3, [x0], #16
	WORD $0x3c810425 // str q5, [x1], #16
	WORD $0x3c810447 // str q7, [x2], #16
	SUBS $8, R3
	BGT  loop
	RET

// func lumaNEON(dst, red, green, blue *uint16, n int, a *lumaArgs)
TEXT ·lumaNEON(SB), NOSPLIT, $0-48
	MOVD dst+0(FP), R0
	MOVD red+8(FP), R1
	MOVD green+16(FP), R2
	MOVD blue+24(FP), R3
	MOVD n+32(FP), R4
	MOVD a+40(FP), R5
	WORD $0xfc4084af // ldr d15, [x5], #8
	WORD $0x4ddfc8b0 // ld1r {v16.4s}, [x5], #4
	WORD $0x4d40c8b1 // ld1r {v17.4s}, [x5]
	WORD $0x6ea0ba31 // neg v17.4s, v17.4s

loop:
	WORD $0x3cc10420 // ldr q0, [x1], #16
	WORD $0x3cc10441 // ldr q1, [x2], #16
	WORD $0x3cc10462 // ldr q2, [x3], #16
	WORD $0x4eb01e03 // mov v3.16b, v16.16b
	WORD $0x4eb01e04 // mov v4.16b, v16.16b
	WORD $0x2f4f2003 // umlal v3.4s, v0.4h, v15.h[0]
	WORD $0x6f4f2004 // umlal2 v4.4s, v0.8h, v15.h[0]
	WORD $0x2f5f2023 // umlal v3.4s, v1.4h, v15.h[1]
	WORD $0x6f5f2024 // umlal2 v4.4s, v1.8h, v15.h[1]
	WORD $0x2f6f2043 // umlal v3.4s, v2.4h, v15.h[2]
	WORD $0x6f6f2044 // umlal2 v4.4s, v2.8h, v15.h[2]
	WORD $0x6eb14463 // ushl v3.4s, v3.4s, v17.4s
	WORD $0x6eb14484 // ushl v4.4s, v4.4s, v17.4s
	WORD $0x0e612863 // xtn v3.4h, v3.4s
	WORD $0x4e612883 // xtn2 v3.8h, v4.4s
	WORD $0x3c810403 // str q3, [x0], #16
	SUBS $8, R4
	BGT  loop
	RET

// Sums of R, G, B, of eight pixel pairs, in V0, V1, V2 become Cb and Cr at R0. Weights of Cb in V14, of Cr in V15,
// offset in V16, less the shift in V17.
#define CHROMA \
	WORD $0x4eb01e03 /* mov v3.16b, v16.16b */ \
	WORD $0x4eb01e04 /* mov v4.16b, v16.16b */ \
	WORD $0x4eb01e05 /* mov v5.16b, v16.16b */ \
	WORD $0x4eb01e06 /* mov v6.16b, v16.16b */ \
	WORD $0x0f4e2003 /* smlal v3.4s, v0.4h, v14.h[0] */ \
	WORD $0x4f4e2004 /* smlal2 v4.4s, v0.8h, v14.h[0] */ \
	WORD $0x0f4f2005 /* smlal v5.4s, v0.4h, v15.h[0] */ \
	WORD $0x4f4f2006 /* smlal2 v6.4s, v0.8h, v15.h[0] */ \
	WORD $0x0f5e2023 /* smlal v3.4s, v1.4h, v14.h[1] */ \
	WORD $0x4f5e2024 /* smlal2 v4.4s, v1.8h, v14.h[1] */ \
	WORD $0x0f5f2025 /* smlal v5.4s, v1.4h, v15.h[1] */ \
	WORD $0x4f5f2026 /* smlal2 v6.4s, v1.8h, v15.h[1] */ \
	WORD $0x0f6e2043 /* smlal v3.4s, v2.4h, v14.h[2] */ \
	WORD $0x4f6e2044 /* smlal2 v4.4s, v2.8h, v14.h[2] */ \
	WORD $0x0f6f2045 /* smlal v5.4s, v2.4h, v15.h[2] */ \
	WORD $0x4f6f2046 /* smlal2 v6.4s, v2.8h, v15.h[2] */ \
	WORD $0x6eb14463 /* ushl v3.4s, v3.4s, v17.4s */ \
	WORD $0x6eb14484 /* ushl v4.4s, v4.4s, v17.4s */ \
	WORD $0x6eb144a5 /* ushl v5.4s, v5.4s, v17.4s */ \
	WORD $0x6eb144c6 /* ushl v6.4s, v6.4s, v17.4s */ \
	WORD $0x0e612863 /* xtn v3.4h, v3.4s */ \
	WORD $0x4e612883 /* xtn2 v3.8h, v4.4s */ \
	WORD $0x0e6128a5 /* xtn v5.4h, v5.4s */ \
	WORD $0x4e6128c5 /* xtn2 v5.8h, v6.4s */ \
	WORD $0x4e453864 /* zip1 v4.8h, v3.8h, v5.8h */ \
	WORD $0x4e457866 /* zip2 v6.8h, v3.8h, v5.8h */ \
	WORD $0xac811804 /* stp q4, q6, [x0], #32 */

// func chroma422NEON(dst, red, green, blue *uint16, n int, a *chromaArgs)
TEXT ·chroma422NEON(SB), NOSPLIT, $0-48
	MOVD dst+0(FP), R0
	MOVD red+8(FP), R1
	MOVD green+16(FP), R2
	MOVD blue+24(FP), R3
	MOVD n+32(FP), R4
	MOVD a+40(FP), R5
	WORD $0xfc4084ae // ldr d14, [x5], #8
	WORD $0xfc4084af // ldr d15, [x5], #8
	WORD $0x4ddfc8b0 // ld1r {v16.4s}, [x5], #4
	WORD $0x4d40c8b1 // ld1r {v17.4s}, [x5]
	WORD $0x6ea0ba31 // neg v17.4s, v17.4s

loop:
	WORD $0x3cdfe023 // ldur q3, [x1, #-2]
	WORD $0x3cc0e024 // ldur q4, [x1, #14]
	WORD $0xacc11825 // ldp q5, q6, [x1], #32
	WORD $0x4e441863 // uzp1 v3.8h, v3.8h, v4.8h
	WORD $0x4e4618a0 // uzp1 v0.8h, v5.8h, v6.8h
	WORD $0x4e4658a4 // uzp2 v4.8h, v5.8h, v6.8h
	WORD $0x4f115400 // shl v0.8h, v0.8h, #1
	WORD $0x4e638400 // add v0.8h, v0.8h, v3.8h
	WORD $0x4e648400 // add v0.8h, v0.8h, v4.8h
	WORD $0x3cdfe043 // ldur q3, [x2, #-2]
	WORD $0x3cc0e044 // ldur q4, [x2, #14]
	WORD $0xacc11845 // ldp q5, q6, [x2], #32
	WORD $0x4e441863 // uzp1 v3.8h, v3.8h, v4.8h
	WORD $0x4e4618a1 // uzp1 v1.8h, v5.8h, v6.8h
	WORD $0x4e4658a4 // uzp2 v4.8h, v5.8h, v6.8h
	WORD $0x4f115421 // shl v1.8h, v1.8h, #1
	WORD $0x4e638421 // add v1.8h, v1.8h, v3.8h
	WORD $0x4e648421 // add v1.8h, v1.8h, v4.8h
	WORD $0x3cdfe063 // ldur q3, [x3, #-2]
	WORD $0x3cc0e064 // ldur q4, [x3, #14]
	WORD $0xacc11865 // ldp q5, q6, [x3], #32
	WORD $0x4e441863 // uzp1 v3.8h, v3.8h, v4.8h
	WORD $0x4e4618a2 // uzp1 v2.8h, v5.8h, v6.8h
	WORD $0x4e4658a4 // uzp2 v4.8h, v5.8h, v6.8h
	WORD $0x4f115442 // shl v2.8h, v2.8h, #1
	WORD $0x4e638442 // add v2.8h, v2.8h, v3.8h
	WORD $0x4e648442 // add v2.8h, v2.8h, v4.8h
	CHROMA
	SUBS $16, R4
	BGT  loop
	RET

// func uyvyNEON(dst *byte, red, green, blue *uint16, n int, y *lumaArgs, c *chromaArgs)
//
// The shifts are those of 8 bits. The weights of Cb and Cr add up to 0, so that two differences of sums are multiplied, not
// three sums.
TEXT ·uyvyNEON(SB), NOSPLIT, $0-56
	MOVD dst+0(FP), R0
	MOVD red+8(FP), R1
	MOVD green+16(FP), R2
	MOVD blue+24(FP), R3
	MOVD n+32(FP), R4
	MOVD y+40(FP), R5
	MOVD c+48(FP), R6
	WORD $0xfc4084ad // ldr d13, [x5], #8
	WORD $0x4d40c8be // ld1r {v30.4s}, [x5]
	WORD $0x6cc13cce // ldp d14, d15, [x6], #16
	WORD $0x4d40c8df // ld1r {v31.4s}, [x6]

loop:
	// sums of the pixels x-1, x and x+1 with the weights 1 2 1 at even x: red in v2, green in v6, blue in v10
	WORD $0x3cdfe022 // ldur q2, [x1, #-2]
	WORD $0x3cc0e023 // ldur q3, [x1, #14]
	WORD $0xacc10420 // ldp q0, q1, [x1], #32
	WORD $0x3cdfe046 // ldur q6, [x2, #-2]
	WORD $0x3cc0e047 // ldur q7, [x2, #14]
	WORD $0xacc11444 // ldp q4, q5, [x2], #32
	WORD $0x3cdfe06a // ldur q10, [x3, #-2]
	WORD $0x3cc0e06b // ldur q11, [x3, #14]
	WORD $0xacc12468 // ldp q8, q9, [x3], #32
	WORD $0x4e63bc42 // addp v2.8h, v2.8h, v3.8h
	WORD $0x4e67bcc6 // addp v6.8h, v6.8h, v7.8h
	WORD $0x4e6bbd4a // addp v10.8h, v10.8h, v11.8h
	WORD $0x4e61bc03 // addp v3.8h, v0.8h, v1.8h
	WORD $0x4e65bc87 // addp v7.8h, v4.8h, v5.8h
	WORD $0x4e69bd0b // addp v11.8h, v8.8h, v9.8h
	WORD $0x4e638442 // add v2.8h, v2.8h, v3.8h
	WORD $0x4e6784c6 // add v6.8h, v6.8h, v7.8h
	WORD $0x4e6b854a // add v10.8h, v10.8h, v11.8h
	// luma
	WORD $0x2f4da010 // umull v16.4s, v0.4h, v13.h[0]
	WORD $0x6f4da011 // umull2 v17.4s, v0.8h, v13.h[0]
	WORD $0x2f4da032 // umull v18.4s, v1.4h, v13.h[0]
	WORD $0x6f4da033 // umull2 v19.4s, v1.8h, v13.h[0]
	WORD $0x2f5d2090 // umlal v16.4s, v4.4h, v13.h[1]
	WORD $0x6f5d2091 // umlal2 v17.4s, v4.8h, v13.h[1]
	WORD $0x2f5d20b2 // umlal v18.4s, v5.4h, v13.h[1]
	WORD $0x6f5d20b3 // umlal2 v19.4s, v5.8h, v13.h[1]
	WORD $0x2f6d2110 // umlal v16.4s, v8.4h, v13.h[2]
	WORD $0x6f6d2111 // umlal2 v17.4s, v8.8h, v13.h[2]
	WORD $0x2f6d2132 // umlal v18.4s, v9.4h, v13.h[2]
	WORD $0x6f6d2133 // umlal2 v19.4s, v9.8h, v13.h[2]
	WORD $0x0e7e4200 // addhn v0.4h, v16.4s, v30.4s
	WORD $0x4e7e4220 // addhn2 v0.8h, v17.4s, v30.4s
	WORD $0x0e7e4241 // addhn v1.4h, v18.4s, v30.4s
	WORD $0x4e7e4261 // addhn2 v1.8h, v19.4s, v30.4s
	WORD $0x6f1d0400 // ushr v0.8h, v0.8h, #3
	WORD $0x6f1d0421 // ushr v1.8h, v1.8h, #3
	// chroma from red - blue, green - blue and green - red
	WORD $0x6e6a8443 // sub v3.8h, v2.8h, v10.8h
	WORD $0x6e6a84c4 // sub v4.8h, v6.8h, v10.8h
	WORD $0x6e6284c5 // sub v5.8h, v6.8h, v2.8h
	WORD $0x0f4ea074 // smull v20.4s, v3.4h, v14.h[0]
	WORD $0x4f4ea075 // smull2 v21.4s, v3.8h, v14.h[0]
	WORD $0x0f5fa0b6 // smull v22.4s, v5.4h, v15.h[1]
	WORD $0x4f5fa0b7 // smull2 v23.4s, v5.8h, v15.h[1]
	WORD $0x0f5e2094 // smlal v20.4s, v4.4h, v14.h[1]
	WORD $0x4f5e2095 // smlal2 v21.4s, v4.8h, v14.h[1]
	WORD $0x0f6f6076 // smlsl v22.4s, v3.4h, v15.h[2]
	WORD $0x4f6f6077 // smlsl2 v23.4s, v3.8h, v15.h[2]
	WORD $0x0e7f4282 // addhn v2.4h, v20.4s, v31.4s
	WORD $0x4e7f42a2 // addhn2 v2.8h, v21.4s, v31.4s
	WORD $0x0e7f42c3 // addhn v3.4h, v22.4s, v31.4s
	WORD $0x4e7f42e3 // addhn2 v3.8h, v23.4s, v31.4s
	WORD $0x6f1b0442 // ushr v2.8h, v2.8h, #5
	WORD $0x6f1b0463 // ushr v3.8h, v3.8h, #5
	WORD $0x4e433844 // zip1 v4.8h, v2.8h, v3.8h
	WORD $0x4e437845 // zip2 v5.8h, v2.8h, v3.8h
	WORD $0x6f185404 // sli v4.8h, v0.8h, #8
	WORD $0x6f185425 // sli v5.8h, v1.8h, #8
	WORD $0xac811404 // stp q4, q5, [x0], #32
	SUBS $16, R4
	BGT  loop
	RET

// func rgb24NEON(dst *byte, red, green, blue *uint16, n, shift int)
TEXT ·rgb24NEON(SB), NOSPLIT, $0-48
	MOVD dst+0(FP), R0
	MOVD red+8(FP), R1
	MOVD green+16(FP), R2
	MOVD blue+24(FP), R3
	MOVD n+32(FP), R4
	MOVD shift+40(FP), R5
	NEG  R5, R5
	WORD $0x4e020cb1 // dup v17.8h, w5

loop:
	WORD $0xacc11023 // ldp q3, q4, [x1], #32
	WORD $0xacc11845 // ldp q5, q6, [x2], #32
	WORD $0xacc14067 // ldp q7, q16, [x3], #32
	WORD $0x6e715463 // urshl v3.8h, v3.8h, v17.8h
	WORD $0x6e715484 // urshl v4.8h, v4.8h, v17.8h
	WORD $0x6e7154a5 // urshl v5.8h, v5.8h, v17.8h
	WORD $0x6e7154c6 // urshl v6.8h, v6.8h, v17.8h
	WORD $0x6e7154e7 // urshl v7.8h, v7.8h, v17.8h
	WORD $0x6e715610 // urshl v16.8h, v16.8h, v17.8h
	WORD $0x4e041860 // uzp1 v0.16b, v3.16b, v4.16b
	WORD $0x4e0618a1 // uzp1 v1.16b, v5.16b, v6.16b
	WORD $0x4e1018e2 // uzp1 v2.16b, v7.16b, v16.16b
	WORD $0x4c9f4000 // st3 {v0.16b, v1.16b, v2.16b}, [x0], #48
	SUBS $16, R4
	BGT  loop
	RET

// func toneNEON(row *uint16, n int, c *signedCurve)
TEXT ·toneNEON(SB), NOSPLIT, $0-24
	MOVD row+0(FP), R0
	MOVD n+8(FP), R1
	MOVD c+16(FP), R2
	WORD $0x4f00e5e8 // movi v8.16b, #15
	WORD $0x4f01e6e9 // movi v9.16b, #55
	WORD $0x4f00e7ea // movi v10.16b, #31
	WORD $0x4cdf2050 // ld1 {v16.16b-v19.16b}, [x2], #64
	WORD $0x4cdf2054 // ld1 {v20.16b-v23.16b}, [x2], #64
	WORD $0x4cdf2058 // ld1 {v24.16b-v27.16b}, [x2], #64
	WORD $0x4c40205c // ld1 {v28.16b-v31.16b}, [x2]

loop:
	WORD $0xad400400 // ldp q0, q1, [x0]
	WORD $0x4f125400 // shl v0.8h, v0.8h, #2
	WORD $0x4f125421 // shl v1.8h, v1.8h, #2
	// the numbers of the segments of v0 and v1 in turn: sample >> 6, (sample >> 7) + 8 or (sample >> 9) + 32, the least
	WORD $0x4e016802 // trn2 v2.16b, v0.16b, v1.16b
	WORD $0x6e281443 // urhadd v3.16b, v2.16b, v8.16b
	WORD $0x6e236c42 // umin v2.16b, v2.16b, v3.16b
	WORD $0x6e291463 // urhadd v3.16b, v3.16b, v9.16b
	WORD $0x6e2a1463 // urhadd v3.16b, v3.16b, v10.16b
	WORD $0x6e236c42 // umin v2.16b, v2.16b, v3.16b
	WORD $0x4e026304 // tbl v4.16b, {v24.16b-v27.16b}, v2.16b
	WORD $0x4e026385 // tbl v5.16b, {v28.16b-v31.16b}, v2.16b
	WORD $0x4e026206 // tbl v6.16b, {v16.16b-v19.16b}, v2.16b
	WORD $0x4e026287 // tbl v7.16b, {v20.16b-v23.16b}, v2.16b
	WORD $0x4e052882 // trn1 v2.16b, v4.16b, v5.16b
	WORD $0x4e056883 // trn2 v3.16b, v4.16b, v5.16b
	WORD $0x6e62b400 // sqrdmulh v0.8h, v0.8h, v2.8h
	WORD $0x6e63b421 // sqrdmulh v1.8h, v1.8h, v3.8h
	WORD $0x4e0728c4 // trn1 v4.16b, v6.16b, v7.16b
	WORD $0x4e0768c5 // trn2 v5.16b, v6.16b, v7.16b
	WORD $0x4e648400 // add v0.8h, v0.8h, v4.8h
	WORD $0x4e658421 // add v1.8h, v1.8h, v5.8h
	WORD $0xad000400 // stp q0, q1, [x0]
	ADD  $32, R0
	SUBS $16, R1
	BGT  loop
	RET

// func shadeNEON(dst, src, upper, lower *uint16, n int, weight *[2]int16)
TEXT ·shadeNEON(SB), NOSPLIT, $0-48
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD upper+16(FP), R2
	MOVD lower+24(FP), R3
	MOVD n+32(FP), R4
	MOVD weight+40(FP), R5
	WORD $0xbd4000af // ldr s15, [x5]

loop:
	WORD $0x3cc10440 // ldr q0, [x2], #16
	WORD $0x3cc10461 // ldr q1, [x3], #16
	WORD $0x2f4fa002 // umull v2.4s, v0.4h, v15.h[0]
	WORD $0x6f4fa003 // umull2 v3.4s, v0.8h, v15.h[0]
	WORD $0x2f5f2022 // umlal v2.4s, v1.4h, v15.h[1]
	WORD $0x6f5f2023 // umlal2 v3.4s, v1.8h, v15.h[1]
	WORD $0x0f188c42 // rshrn v2.4h, v2.4s, #8
	WORD $0x4f188c62 // rshrn2 v2.8h, v3.4s, #8
	WORD $0x3cc10420 // ldr q0, [x1], #16
	WORD $0x2e62c001 // umull v1.4s, v0.4h, v2.4h
	WORD $0x6e62c003 // umull2 v3.4s, v0.8h, v2.8h
	WORD $0x2f149c21 // uqrshrn v1.4h, v1.4s, #12
	WORD $0x6f149c61 // uqrshrn2 v1.8h, v3.4s, #12
	WORD $0x3c810401 // str q1, [x0], #16
	SUBS $8, R4
	BGT  loop
	RET
