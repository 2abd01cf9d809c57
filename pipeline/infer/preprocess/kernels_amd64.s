// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// Two pixels, first and first+4, of the taps at R8: the samples of both lines times the horizontal weights, then the lines'
// weights. to gets the float32s of a pixel's three channels, and one more, in each half.
#define PIXELS(first, to) \
	MOVL        (4*first)(R8), AX; \
	MOVL        (4*first+16)(R8), BX; \
	VMOVDQU     (SI)(AX*1), X0; \
	VINSERTI128 $1, (SI)(BX*1), Y0, Y0; \
	VMOVDQU     (DX)(AX*1), X1; \
	VINSERTI128 $1, (DX)(BX*1), Y1, Y1; \
	VMOVDQU     (32+32*first)(R8), Y2; \
	VMOVDQU     (160+32*first)(R8), Y3; \
	VPSHUFB     Y2, Y0, Y0; \
	VPSHUFB     Y2, Y1, Y1; \
	VPMADDWD    Y3, Y0, Y0; \
	VPMADDWD    Y3, Y1, Y1; \
	VPSUBD      Y0, Y1, Y1; \
	VCVTDQ2PS   Y0, Y0; \
	VCVTDQ2PS   Y1, Y1; \
	VMULPS      Y15, Y1, Y1; \
	VADDPS      Y1, Y0, to

// The same with the upper line alone.
#define UPPER(first, to) \
	MOVL        (4*first)(R8), AX; \
	MOVL        (4*first+16)(R8), BX; \
	VMOVDQU     (SI)(AX*1), X0; \
	VINSERTI128 $1, (SI)(BX*1), Y0, Y0; \
	VPSHUFB     (32+32*first)(R8), Y0, Y0; \
	VPMADDWD    (160+32*first)(R8), Y0, Y0; \
	VCVTDQ2PS   Y0, to

// The samples of eight pixels, Y0, Y1 and Y2, out of Y4 to Y7.
#define CHANNELS \
	VUNPCKLPS Y5, Y4, Y8; \
	VUNPCKHPS Y5, Y4, Y9; \
	VUNPCKLPS Y7, Y6, Y10; \
	VUNPCKHPS Y7, Y6, Y11; \
	VUNPCKLPD Y10, Y8, Y0; \
	VUNPCKHPD Y10, Y8, Y1; \
	VUNPCKLPD Y11, Y9, Y2

// Adds the last constant of the tensor's channel k, limits, and stores.
#define STORE(k, v, to) \
	VADDPS  (128*k+96)(R9), v, v; \
	VMAXPS  (384+64*k)(R9), v, v; \
	VMINPS  (416+64*k)(R9), v, v; \
	VMOVUPS v, (to); \
	ADDQ    $32, to

// The tensor's channel k out of three samples.
#define MIXED(k, to) \
	VMULPS (128*k)(R9), Y0, Y3; \
	VMULPS (128*k+32)(R9), Y1, Y4; \
	VADDPS Y4, Y3, Y3; \
	VMULPS (128*k+64)(R9), Y2, Y4; \
	VADDPS Y4, Y3, Y3; \
	STORE(k, Y3, to)

// The tensor's channel k out of its own sample.
#define OWN(k, v, to) \
	VMULPS (160*k)(R9), v, v; \
	STORE(k, v, to)

// func sampleAVX2(out0, out1, out2 *float32, a, b *byte, groups *taps, n int, k *colours, weight float32)
TEXT ·sampleAVX2(SB), NOSPLIT, $0-68
	MOVQ         out0+0(FP), DI
	MOVQ         out1+8(FP), R10
	MOVQ         out2+16(FP), R11
	MOVQ         a+24(FP), SI
	MOVQ         b+32(FP), DX
	MOVQ         groups+40(FP), R8
	MOVQ         n+48(FP), CX
	MOVQ         k+56(FP), R9
	MOVBLZX      576(R9), R13
	MOVL         weight+64(FP), R12
	VBROADCASTSS weight+64(FP), Y15

loop:
	TESTL R12, R12
	JE    upper
	PIXELS(0, Y4)
	PIXELS(1, Y5)
	PIXELS(2, Y6)
	PIXELS(3, Y7)
	JMP   channels

upper:
	UPPER(0, Y4)
	UPPER(1, Y5)
	UPPER(2, Y6)
	UPPER(3, Y7)

channels:
	CHANNELS
	TESTL R13, R13
	JNE   mixed
	OWN(0, Y0, DI)
	TESTQ R10, R10
	JE    next
	OWN(1, Y1, R10)
	OWN(2, Y2, R11)

next:
	ADDQ $288, R8
	SUBQ $1, CX
	JG   loop
	VZEROUPPER
	RET

mixed:
	MIXED(0, DI)
	TESTQ R10, R10
	JE    next
	MIXED(1, R10)
	MIXED(2, R11)
	JMP   next

// func zipAVX2(dst, even, odd *byte, n int)
TEXT ·zipAVX2(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ even+8(FP), SI
	MOVQ odd+16(FP), DX
	MOVQ n+24(FP), CX

loop:
	VMOVDQU    (SI), X0
	VMOVDQU    (DX), X1
	VPUNPCKLBW X1, X0, X2
	VPUNPCKHBW X1, X0, X3
	VMOVDQU    X2, (DI)
	VMOVDQU    X3, 16(DI)
	ADDQ       $16, SI
	ADDQ       $16, DX
	ADDQ       $32, DI
	SUBQ       $16, CX
	JG         loop
	RET

// func halfAVX2(dst *byte, src *float32, n int)
TEXT ·halfAVX2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX

loop:
	VMOVUPS   (SI), Y0
	VCVTPS2PH $0, Y0, X0
	VMOVDQU   X0, (DI)
	ADDQ      $32, SI
	ADDQ      $16, DI
	SUBQ      $8, CX
	JG        loop
	VZEROUPPER
	RET

// func bytesAVX2(dst *byte, src *float32, n int)
TEXT ·bytesAVX2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX

loop:
	VCVTPS2DQ    (SI), Y0
	VEXTRACTI128 $1, Y0, X1
	VPACKSSDW    X1, X0, X0
	VPACKUSWB    X0, X0, X0
	VMOVQ        X0, (DI)
	ADDQ         $32, SI
	ADDQ         $8, DI
	SUBQ         $8, CX
	JG           loop
	VZEROUPPER
	RET
