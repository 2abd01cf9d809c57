// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// Kernels for NEON. Instructions that Go's assembler lacks stand here as words, with what they are behind them.

// func sampleNEON(out0, out1, out2 *float32, a, b *byte, groups *taps, n int, k *colours, weight float32)
TEXT ·sampleNEON(SB), NOSPLIT, $0-68
	MOVD out0+0(FP), R0
	MOVD out1+8(FP), R1
	MOVD out2+16(FP), R2
	MOVD a+24(FP), R3
	MOVD b+32(FP), R4
	MOVD groups+40(FP), R5
	MOVD n+48(FP), R6
	MOVD k+56(FP), R7
	MOVWU weight+64(FP), R8
	WORD $0x4e040d0d // dup v13.4s, w8
	WORD $0x3dc000ee // ldr q14, [x7, #0]
	WORD $0x3dc008ef // ldr q15, [x7, #32]
	WORD $0x3dc010f0 // ldr q16, [x7, #64]
	WORD $0x3dc018f1 // ldr q17, [x7, #96]
	WORD $0x3dc020f2 // ldr q18, [x7, #128]
	WORD $0x3dc028f3 // ldr q19, [x7, #160]
	WORD $0x3dc030f4 // ldr q20, [x7, #192]
	WORD $0x3dc038f5 // ldr q21, [x7, #224]
	WORD $0x3dc040f6 // ldr q22, [x7, #256]
	WORD $0x3dc048f7 // ldr q23, [x7, #288]
	WORD $0x3dc050f8 // ldr q24, [x7, #320]
	WORD $0x3dc058f9 // ldr q25, [x7, #352]
	WORD $0x3dc060fa // ldr q26, [x7, #384]
	WORD $0x3dc068fb // ldr q27, [x7, #416]
	WORD $0x3dc070fc // ldr q28, [x7, #448]
	WORD $0x3dc078fd // ldr q29, [x7, #480]
	WORD $0x3dc080fe // ldr q30, [x7, #512]
	WORD $0x3dc088ff // ldr q31, [x7, #544]
	MOVBU 576(R7), R11
	LSL  $1, R6
	MOVD $16, R9

	// Pixels 0 to 3 of a group, then, 16 bytes further on in its taps, pixels 4 to 7.
loop:
	CBZ R8, upper
	MOVWU 0(R5), R10
	WORD $0x3cea6860 // ldr q0, [x3, x10]
	WORD $0x3cea6881 // ldr q1, [x4, x10]
	WORD $0x3dc008a2 // ldr q2, [x5, #32]
	WORD $0x3dc028a3 // ldr q3, [x5, #160]
	WORD $0x4e020000 // tbl v0.16b, {v0.16b}, v2.16b
	WORD $0x4e020021 // tbl v1.16b, {v1.16b}, v2.16b
	WORD $0x0e63c008 // smull v8.4s, v0.4h, v3.4h
	WORD $0x0e63c029 // smull v9.4s, v1.4h, v3.4h
	WORD $0x4e638008 // smlal2 v8.4s, v0.8h, v3.8h
	WORD $0x4e638029 // smlal2 v9.4s, v1.8h, v3.8h
	WORD $0x6ea88529 // sub v9.4s, v9.4s, v8.4s
	WORD $0x4e21d908 // scvtf v8.4s, v8.4s
	WORD $0x4e21d929 // scvtf v9.4s, v9.4s
	WORD $0x6e2ddd29 // fmul v9.4s, v9.4s, v13.4s
	WORD $0x4e29d504 // fadd v4.4s, v8.4s, v9.4s
	MOVWU 4(R5), R10
	WORD $0x3cea6860 // ldr q0, [x3, x10]
	WORD $0x3cea6881 // ldr q1, [x4, x10]
	WORD $0x3dc010a2 // ldr q2, [x5, #64]
	WORD $0x3dc030a3 // ldr q3, [x5, #192]
	WORD $0x4e020000 // tbl v0.16b, {v0.16b}, v2.16b
	WORD $0x4e020021 // tbl v1.16b, {v1.16b}, v2.16b
	WORD $0x0e63c008 // smull v8.4s, v0.4h, v3.4h
	WORD $0x0e63c029 // smull v9.4s, v1.4h, v3.4h
	WORD $0x4e638008 // smlal2 v8.4s, v0.8h, v3.8h
	WORD $0x4e638029 // smlal2 v9.4s, v1.8h, v3.8h
	WORD $0x6ea88529 // sub v9.4s, v9.4s, v8.4s
	WORD $0x4e21d908 // scvtf v8.4s, v8.4s
	WORD $0x4e21d929 // scvtf v9.4s, v9.4s
	WORD $0x6e2ddd29 // fmul v9.4s, v9.4s, v13.4s
	WORD $0x4e29d505 // fadd v5.4s, v8.4s, v9.4s
	MOVWU 8(R5), R10
	WORD $0x3cea6860 // ldr q0, [x3, x10]
	WORD $0x3cea6881 // ldr q1, [x4, x10]
	WORD $0x3dc018a2 // ldr q2, [x5, #96]
	WORD $0x3dc038a3 // ldr q3, [x5, #224]
	WORD $0x4e020000 // tbl v0.16b, {v0.16b}, v2.16b
	WORD $0x4e020021 // tbl v1.16b, {v1.16b}, v2.16b
	WORD $0x0e63c008 // smull v8.4s, v0.4h, v3.4h
	WORD $0x0e63c029 // smull v9.4s, v1.4h, v3.4h
	WORD $0x4e638008 // smlal2 v8.4s, v0.8h, v3.8h
	WORD $0x4e638029 // smlal2 v9.4s, v1.8h, v3.8h
	WORD $0x6ea88529 // sub v9.4s, v9.4s, v8.4s
	WORD $0x4e21d908 // scvtf v8.4s, v8.4s
	WORD $0x4e21d929 // scvtf v9.4s, v9.4s
	WORD $0x6e2ddd29 // fmul v9.4s, v9.4s, v13.4s
	WORD $0x4e29d506 // fadd v6.4s, v8.4s, v9.4s
	MOVWU 12(R5), R10
	WORD $0x3cea6860 // ldr q0, [x3, x10]
	WORD $0x3cea6881 // ldr q1, [x4, x10]
	WORD $0x3dc020a2 // ldr q2, [x5, #128]
	WORD $0x3dc040a3 // ldr q3, [x5, #256]
	WORD $0x4e020000 // tbl v0.16b, {v0.16b}, v2.16b
	WORD $0x4e020021 // tbl v1.16b, {v1.16b}, v2.16b
	WORD $0x0e63c008 // smull v8.4s, v0.4h, v3.4h
	WORD $0x0e63c029 // smull v9.4s, v1.4h, v3.4h
	WORD $0x4e638008 // smlal2 v8.4s, v0.8h, v3.8h
	WORD $0x4e638029 // smlal2 v9.4s, v1.8h, v3.8h
	WORD $0x6ea88529 // sub v9.4s, v9.4s, v8.4s
	WORD $0x4e21d908 // scvtf v8.4s, v8.4s
	WORD $0x4e21d929 // scvtf v9.4s, v9.4s
	WORD $0x6e2ddd29 // fmul v9.4s, v9.4s, v13.4s
	WORD $0x4e29d507 // fadd v7.4s, v8.4s, v9.4s
	B channels

upper: // the upper line alone
	MOVWU 0(R5), R10
	WORD $0x3cea6860 // ldr q0, [x3, x10]
	WORD $0x3dc008a2 // ldr q2, [x5, #32]
	WORD $0x3dc028a3 // ldr q3, [x5, #160]
	WORD $0x4e020000 // tbl v0.16b, {v0.16b}, v2.16b
	WORD $0x0e63c008 // smull v8.4s, v0.4h, v3.4h
	WORD $0x4e638008 // smlal2 v8.4s, v0.8h, v3.8h
	WORD $0x4e21d904 // scvtf v4.4s, v8.4s
	MOVWU 4(R5), R10
	WORD $0x3cea6860 // ldr q0, [x3, x10]
	WORD $0x3dc010a2 // ldr q2, [x5, #64]
	WORD $0x3dc030a3 // ldr q3, [x5, #192]
	WORD $0x4e020000 // tbl v0.16b, {v0.16b}, v2.16b
	WORD $0x0e63c008 // smull v8.4s, v0.4h, v3.4h
	WORD $0x4e638008 // smlal2 v8.4s, v0.8h, v3.8h
	WORD $0x4e21d905 // scvtf v5.4s, v8.4s
	MOVWU 8(R5), R10
	WORD $0x3cea6860 // ldr q0, [x3, x10]
	WORD $0x3dc018a2 // ldr q2, [x5, #96]
	WORD $0x3dc038a3 // ldr q3, [x5, #224]
	WORD $0x4e020000 // tbl v0.16b, {v0.16b}, v2.16b
	WORD $0x0e63c008 // smull v8.4s, v0.4h, v3.4h
	WORD $0x4e638008 // smlal2 v8.4s, v0.8h, v3.8h
	WORD $0x4e21d906 // scvtf v6.4s, v8.4s
	MOVWU 12(R5), R10
	WORD $0x3cea6860 // ldr q0, [x3, x10]
	WORD $0x3dc020a2 // ldr q2, [x5, #128]
	WORD $0x3dc040a3 // ldr q3, [x5, #256]
	WORD $0x4e020000 // tbl v0.16b, {v0.16b}, v2.16b
	WORD $0x0e63c008 // smull v8.4s, v0.4h, v3.4h
	WORD $0x4e638008 // smlal2 v8.4s, v0.8h, v3.8h
	WORD $0x4e21d907 // scvtf v7.4s, v8.4s

channels:
	WORD $0x4e853888 // zip1 v8.4s, v4.4s, v5.4s
	WORD $0x4e857889 // zip2 v9.4s, v4.4s, v5.4s
	WORD $0x4e8738ca // zip1 v10.4s, v6.4s, v7.4s
	WORD $0x4e8778cb // zip2 v11.4s, v6.4s, v7.4s
	WORD $0x4eca3900 // zip1 v0.2d, v8.2d, v10.2d
	WORD $0x4eca7901 // zip2 v1.2d, v8.2d, v10.2d
	WORD $0x4ecb3922 // zip1 v2.2d, v9.2d, v11.2d
	CBNZ R11, mixed

	// Channels of the tensor, each out of its own sample.
	WORD $0x6e2edc00 // fmul v0.4s, v0.4s, v14.4s
	WORD $0x4e31d400 // fadd v0.4s, v0.4s, v17.4s
	WORD $0x4e3af400 // fmax v0.4s, v0.4s, v26.4s
	WORD $0x4ebbf400 // fmin v0.4s, v0.4s, v27.4s
	WORD $0x3c810400 // str q0, [x0], #16
	CBZ  R1, next
	WORD $0x6e33dc21 // fmul v1.4s, v1.4s, v19.4s
	WORD $0x4e35d421 // fadd v1.4s, v1.4s, v21.4s
	WORD $0x4e3cf421 // fmax v1.4s, v1.4s, v28.4s
	WORD $0x4ebdf421 // fmin v1.4s, v1.4s, v29.4s
	WORD $0x3c810421 // str q1, [x1], #16
	WORD $0x6e38dc42 // fmul v2.4s, v2.4s, v24.4s
	WORD $0x4e39d442 // fadd v2.4s, v2.4s, v25.4s
	WORD $0x4e3ef442 // fmax v2.4s, v2.4s, v30.4s
	WORD $0x4ebff442 // fmin v2.4s, v2.4s, v31.4s
	WORD $0x3c810442 // str q2, [x2], #16

next:
	ADD  R9, R5
	EOR  $256, R9 // 16 and 272 bytes, alternately
	SUBS $1, R6
	BGT  loop
	RET

mixed: // channels out of three samples
	WORD $0x6e2edc03 // fmul v3.4s, v0.4s, v14.4s
	WORD $0x6e2fdc24 // fmul v4.4s, v1.4s, v15.4s
	WORD $0x4e24d463 // fadd v3.4s, v3.4s, v4.4s
	WORD $0x6e30dc44 // fmul v4.4s, v2.4s, v16.4s
	WORD $0x4e24d463 // fadd v3.4s, v3.4s, v4.4s
	WORD $0x4e31d463 // fadd v3.4s, v3.4s, v17.4s
	WORD $0x4e3af463 // fmax v3.4s, v3.4s, v26.4s
	WORD $0x4ebbf463 // fmin v3.4s, v3.4s, v27.4s
	WORD $0x3c810403 // str q3, [x0], #16
	CBZ  R1, next
	WORD $0x6e32dc03 // fmul v3.4s, v0.4s, v18.4s
	WORD $0x6e33dc24 // fmul v4.4s, v1.4s, v19.4s
	WORD $0x4e24d463 // fadd v3.4s, v3.4s, v4.4s
	WORD $0x6e34dc44 // fmul v4.4s, v2.4s, v20.4s
	WORD $0x4e24d463 // fadd v3.4s, v3.4s, v4.4s
	WORD $0x4e35d463 // fadd v3.4s, v3.4s, v21.4s
	WORD $0x4e3cf463 // fmax v3.4s, v3.4s, v28.4s
	WORD $0x4ebdf463 // fmin v3.4s, v3.4s, v29.4s
	WORD $0x3c810423 // str q3, [x1], #16
	WORD $0x6e36dc03 // fmul v3.4s, v0.4s, v22.4s
	WORD $0x6e37dc24 // fmul v4.4s, v1.4s, v23.4s
	WORD $0x4e24d463 // fadd v3.4s, v3.4s, v4.4s
	WORD $0x6e38dc44 // fmul v4.4s, v2.4s, v24.4s
	WORD $0x4e24d463 // fadd v3.4s, v3.4s, v4.4s
	WORD $0x4e39d463 // fadd v3.4s, v3.4s, v25.4s
	WORD $0x4e3ef463 // fmax v3.4s, v3.4s, v30.4s
	WORD $0x4ebff463 // fmin v3.4s, v3.4s, v31.4s
	WORD $0x3c810443 // str q3, [x2], #16
	B    next

// func zipNEON(dst, even, odd *byte, n int)
TEXT ·zipNEON(SB), NOSPLIT, $0-32
	MOVD dst+0(FP), R0
	MOVD even+8(FP), R1
	MOVD odd+16(FP), R2
	MOVD n+24(FP), R3

loop:
	WORD $0x3cc10420 // ldr q0, [x1], #16
	WORD $0x3cc10441 // ldr q1, [x2], #16
	WORD $0x4c9f8000 // st2 {v0.16b, v1.16b}, [x0], #32
	SUBS $16, R3
	BGT  loop
	RET

// func halfNEON(dst *byte, src *float32, n int)
TEXT ·halfNEON(SB), NOSPLIT, $0-24
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD n+16(FP), R2

loop:
	WORD $0xacc10420 // ldp q0, q1, [x1], #32
	WORD $0x0e216800 // fcvtn v0.4h, v0.4s
	WORD $0x4e216820 // fcvtn2 v0.8h, v1.4s
	WORD $0x3c810400 // str q0, [x0], #16
	SUBS $8, R2
	BGT  loop
	RET

// func bytesNEON(dst *byte, src *float32, n int)
TEXT ·bytesNEON(SB), NOSPLIT, $0-24
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD n+16(FP), R2

loop:
	WORD $0xacc10420 // ldp q0, q1, [x1], #32
	WORD $0x4e21a800 // fcvtns v0.4s, v0.4s
	WORD $0x4e21a821 // fcvtns v1.4s, v1.4s
	WORD $0x0e612800 // xtn v0.4h, v0.4s
	WORD $0x4e612820 // xtn2 v0.8h, v1.4s
	WORD $0x0e212800 // xtn v0.8b, v0.8h
	WORD $0xfc008400 // str d0, [x0], #8
	SUBS $8, R2
	BGT  loop
	RET
