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

// func bilinearNEON(own, green, other, up, mid, down *uint16, n, odd int)
TEXT ·bilinearNEON(SB), NOSPLIT, $0-64
	MOVD own+0(FP), R0
	MOVD green+8(FP), R1
	MOVD other+16(FP), R2
	MOVD up+24(FP), R3
	MOVD mid+32(FP), R4
	MOVD down+40(FP), R5
	MOVD n+48(FP), R6
	MOVD odd+56(FP), R7
	MOVD $0xffff, R8
	LSL  $4, R7
	LSL  R7, R8
	WORD $0x4e040d10 // dup v16.4s, w8

loop:
	WORD $0x3cdfe080 // ldur q0, [x4, #-2]
	WORD $0x3cc02081 // ldur q1, [x4, #2]
	WORD $0x6e611402 // urhadd v2.8h, v0.8h, v1.8h
	WORD $0x4e618400 // add v0.8h, v0.8h, v1.8h
	WORD $0x3dc00061 // ldr q1, [x3]
	WORD $0x3dc000a3 // ldr q3, [x5]
	WORD $0x6e631424 // urhadd v4.8h, v1.8h, v3.8h
	WORD $0x4e638421 // add v1.8h, v1.8h, v3.8h
	WORD $0x4e618400 // add v0.8h, v0.8h, v1.8h
	WORD $0x6f1e2400 // urshr v0.8h, v0.8h, #2
	WORD $0x3cdfe061 // ldur q1, [x3, #-2]
	WORD $0x3cc02063 // ldur q3, [x3, #2]
	WORD $0x3cdfe0a5 // ldur q5, [x5, #-2]
	WORD $0x3cc020a6 // ldur q6, [x5, #2]
	WORD $0x4e638421 // add v1.8h, v1.8h, v3.8h
	WORD $0x4e6684a5 // add v5.8h, v5.8h, v6.8h
	WORD $0x4e658421 // add v1.8h, v1.8h, v5.8h
	WORD $0x6f1e2421 // urshr v1.8h, v1.8h, #2
	WORD $0x3cc10483 // ldr q3, [x4], #16
	WORD $0x6eb01c62 // bit v2.16b, v3.16b, v16.16b
	WORD $0x6eb01c03 // bit v3.16b, v0.16b, v16.16b
	WORD $0x6eb01c24 // bit v4.16b, v1.16b, v16.16b
	WORD $0x3c810402 // str q2, [x0], #16
	WORD $0x3c810423 // str q3, [x1], #16
	WORD $0x3c810444 // str q4, [x2], #16
	ADD  $16, R3
	ADD  $16, R5
	SUBS $8, R6
	BGT  loop
	RET

// func malvarNEON(own, green, other *uint16, rows *[5]*uint16, n int, k *malvarArgs, odd int)
TEXT ·malvarNEON(SB), NOSPLIT, $0-56
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
	MOVD k+40(FP), R10
	MOVD odd+48(FP), R11
	MOVD $0xffff, R12
	LSL  $4, R11
	LSL  R11, R12
	WORD $0x4ddfc950 // ld1r {v16.4s}, [x10], #4
	WORD $0x4ddfc951 // ld1r {v17.4s}, [x10], #4
	WORD $0x4ddfc952 // ld1r {v18.4s}, [x10], #4
	WORD $0x4ddfc953 // ld1r {v19.4s}, [x10], #4
	WORD $0x4ddfc954 // ld1r {v20.4s}, [x10], #4
	WORD $0x4ddfc955 // ld1r {v21.4s}, [x10], #4
	WORD $0x4ddfc956 // ld1r {v22.4s}, [x10], #4
	WORD $0x4ddfc957 // ld1r {v23.4s}, [x10], #4
	WORD $0x4ddfc958 // ld1r {v24.4s}, [x10], #4
	WORD $0x4ddfc959 // ld1r {v25.4s}, [x10], #4
	WORD $0x4ddfc95a // ld1r {v26.4s}, [x10], #4
	WORD $0x4d40c95b // ld1r {v27.4s}, [x10]
	WORD $0x4e040d8e // dup v14.4s, w12
	WORD $0x6f06a40f // mvni v15.8h, #0xc0, lsl #8

loop:
	WORD $0x3dc000c0 // ldr q0, [x6]
	WORD $0x3cdfe0c1 // ldur q1, [x6, #-2]
	WORD $0x3cc020c2 // ldur q2, [x6, #2]
	WORD $0x4e628421 // add v1.8h, v1.8h, v2.8h
	WORD $0x3dc000a2 // ldr q2, [x5]
	WORD $0x3dc000e3 // ldr q3, [x7]
	WORD $0x4e638442 // add v2.8h, v2.8h, v3.8h
	WORD $0x3cdfc0c3 // ldur q3, [x6, #-4]
	WORD $0x3cc040c4 // ldur q4, [x6, #4]
	WORD $0x4e648463 // add v3.8h, v3.8h, v4.8h
	WORD $0x3cc10484 // ldr q4, [x4], #16
	WORD $0x3cc10505 // ldr q5, [x8], #16
	WORD $0x4e658484 // add v4.8h, v4.8h, v5.8h
	WORD $0x3cdfe0a5 // ldur q5, [x5, #-2]
	WORD $0x3cc020a6 // ldur q6, [x5, #2]
	WORD $0x4e6684a5 // add v5.8h, v5.8h, v6.8h
	WORD $0x3cdfe0e6 // ldur q6, [x7, #-2]
	WORD $0x3cc020e7 // ldur q7, [x7, #2]
	WORD $0x4e6784c6 // add v6.8h, v6.8h, v7.8h
	WORD $0x0e70c01c // smull v28.4s, v0.4h, v16.4h
	WORD $0x4e70c01d // smull2 v29.4s, v0.8h, v16.8h
	WORD $0x0e76c01e // smull v30.4s, v0.4h, v22.4h
	WORD $0x4e76c01f // smull2 v31.4s, v0.8h, v22.8h
	WORD $0x0e71803c // smlal v28.4s, v1.4h, v17.4h
	WORD $0x4e71803d // smlal2 v29.4s, v1.8h, v17.8h
	WORD $0x0e77803e // smlal v30.4s, v1.4h, v23.4h
	WORD $0x4e77803f // smlal2 v31.4s, v1.8h, v23.8h
	WORD $0x0e72805c // smlal v28.4s, v2.4h, v18.4h
	WORD $0x4e72805d // smlal2 v29.4s, v2.8h, v18.8h
	WORD $0x0e78805e // smlal v30.4s, v2.4h, v24.4h
	WORD $0x4e78805f // smlal2 v31.4s, v2.8h, v24.8h
	WORD $0x0e73807c // smlal v28.4s, v3.4h, v19.4h
	WORD $0x4e73807d // smlal2 v29.4s, v3.8h, v19.8h
	WORD $0x0e79807e // smlal v30.4s, v3.4h, v25.4h
	WORD $0x4e79807f // smlal2 v31.4s, v3.8h, v25.8h
	WORD $0x0e74809c // smlal v28.4s, v4.4h, v20.4h
	WORD $0x4e74809d // smlal2 v29.4s, v4.8h, v20.8h
	WORD $0x0e7a809e // smlal v30.4s, v4.4h, v26.4h
	WORD $0x4e7a809f // smlal2 v31.4s, v4.8h, v26.8h
	WORD $0x0e7580bc // smlal v28.4s, v5.4h, v21.4h
	WORD $0x4e7580bd // smlal2 v29.4s, v5.8h, v21.8h
	WORD $0x0e7b80be // smlal v30.4s, v5.4h, v27.4h
	WORD $0x4e7b80bf // smlal2 v31.4s, v5.8h, v27.8h
	WORD $0x0e7580dc // smlal v28.4s, v6.4h, v21.4h
	WORD $0x4e7580dd // smlal2 v29.4s, v6.8h, v21.8h
	WORD $0x0e7b80de // smlal v30.4s, v6.4h, v27.4h
	WORD $0x4e7b80df // smlal2 v31.4s, v6.8h, v27.8h
	WORD $0x2f1c8f81 // sqrshrun v1.4h, v28.4s, #4
	WORD $0x6f1c8fa1 // sqrshrun2 v1.8h, v29.4s, #4
	WORD $0x2f1c8fc2 // sqrshrun v2.4h, v30.4s, #4
	WORD $0x6f1c8fe2 // sqrshrun2 v2.8h, v31.4s, #4
	WORD $0x6e6f6c21 // umin v1.8h, v1.8h, v15.8h
	WORD $0x6e6f6c42 // umin v2.8h, v2.8h, v15.8h
	WORD $0x4ea11c23 // mov v3.16b, v1.16b
	WORD $0x6eae1c03 // bit v3.16b, v0.16b, v14.16b
	WORD $0x6eae1c20 // bit v0.16b, v1.16b, v14.16b
	WORD $0x3c810403 // str q3, [x0], #16
	WORD $0x3c810420 // str q0, [x1], #16
	WORD $0x3c810442 // str q2, [x2], #16
	ADD  $16, R5
	ADD  $16, R6
	ADD  $16, R7
	SUBS $8, R9
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

// func chroma420NEON(dst, r0, g0, b0, r1, g1, b1 *uint16, n int, a *chromaArgs)
TEXT ·chroma420NEON(SB), NOSPLIT, $0-72
	MOVD dst+0(FP), R0
	MOVD r0+8(FP), R1
	MOVD g0+16(FP), R2
	MOVD b0+24(FP), R3
	MOVD r1+32(FP), R6
	MOVD g1+40(FP), R7
	MOVD b1+48(FP), R8
	MOVD n+56(FP), R4
	MOVD a+64(FP), R5
	WORD $0xfc4084ae // ldr d14, [x5], #8
	WORD $0xfc4084af // ldr d15, [x5], #8
	WORD $0x4ddfc8b0 // ld1r {v16.4s}, [x5], #4
	WORD $0x4d40c8b1 // ld1r {v17.4s}, [x5]
	WORD $0x6ea0ba31 // neg v17.4s, v17.4s

loop:
	WORD $0xacc11023 // ldp q3, q4, [x1], #32
	WORD $0xacc118c5 // ldp q5, q6, [x6], #32
	WORD $0x4e658463 // add v3.8h, v3.8h, v5.8h
	WORD $0x4e668484 // add v4.8h, v4.8h, v6.8h
	WORD $0x4e64bc60 // addp v0.8h, v3.8h, v4.8h
	WORD $0xacc11043 // ldp q3, q4, [x2], #32
	WORD $0xacc118e5 // ldp q5, q6, [x7], #32
	WORD $0x4e658463 // add v3.8h, v3.8h, v5.8h
	WORD $0x4e668484 // add v4.8h, v4.8h, v6.8h
	WORD $0x4e64bc61 // addp v1.8h, v3.8h, v4.8h
	WORD $0xacc11063 // ldp q3, q4, [x3], #32
	WORD $0xacc11905 // ldp q5, q6, [x8], #32
	WORD $0x4e658463 // add v3.8h, v3.8h, v5.8h
	WORD $0x4e668484 // add v4.8h, v4.8h, v6.8h
	WORD $0x4e64bc62 // addp v2.8h, v3.8h, v4.8h
	CHROMA
	SUBS $16, R4
	BGT  loop
	RET

// func uyvyNEON(dst *byte, y, c *uint16, n int)
TEXT ·uyvyNEON(SB), NOSPLIT, $0-32
	MOVD dst+0(FP), R0
	MOVD y+8(FP), R1
	MOVD c+16(FP), R2
	MOVD n+24(FP), R3

loop:
	WORD $0x3cc10420 // ldr q0, [x1], #16
	WORD $0x3cc10441 // ldr q1, [x2], #16
	WORD $0x4f185400 // shl v0.8h, v0.8h, #8
	WORD $0x4ea11c00 // orr v0.16b, v0.16b, v1.16b
	WORD $0x3c810400 // str q0, [x0], #16
	SUBS $8, R3
	BGT  loop
	RET

// func narrowNEON(dst *byte, src *uint16, n int)
TEXT ·narrowNEON(SB), NOSPLIT, $0-24
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD n+16(FP), R2

loop:
	WORD $0xacc10420 // ldp q0, q1, [x1], #32
	WORD $0x4e011800 // uzp1 v0.16b, v0.16b, v1.16b
	WORD $0x3c810400 // str q0, [x0], #16
	SUBS $16, R2
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
	// the numbers of the segments, as in CODE of columns_arm64.s, of samples of v0 and v1 in turn
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
