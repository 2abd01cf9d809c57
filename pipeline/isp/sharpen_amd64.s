// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// func detailAVX2(dst, red, green, blue *uint16, n int)
TEXT ·detailAVX2(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ red+8(FP), R8
	MOVQ green+16(FP), R9
	MOVQ blue+24(FP), R10
	MOVQ n+32(FP), CX
	MOVL $0x00020002, AX
	VMOVD AX, X8
	VPBROADCASTD X8, Y8
	XORQ DX, DX

loop:
	VMOVDQU (R9)(DX*1), Y0
	VPADDW  Y0, Y0, Y0
	VPADDW  (R8)(DX*1), Y0, Y0
	VPADDW  (R10)(DX*1), Y0, Y0
	VPADDW  Y8, Y0, Y0
	VPSRLW  $2, Y0, Y0
	VMOVDQU Y0, (DI)(DX*1)
	ADDQ    $32, DX
	SUBQ    $16, CX
	JG      loop
	VZEROUPPER
	RET

// The sum of a column of Ys, at off bytes from the pixels, in y.
#define COLUMN(off, y) \
	VMOVDQU off(R12)(DX*1), y \
	VPADDW  y, y, y \
	VPADDW  off(R11)(DX*1), y, y \
	VPADDW  off(R13)(DX*1), y, y

// Adds the detail in Y0 to a colour.
#define ADD(src, dst) \
	VPADDW  (src)(DX*1), Y0, Y1 \
	VPMAXSW Y7, Y1, Y1 \
	VPMINSW Y8, Y1, Y1 \
	VMOVDQU Y1, (dst)(DX*1)

// func sharpenAVX2(dst, src, y *[3]*uint16, n int, weights *[4]int16)
TEXT ·sharpenAVX2(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), AX
	MOVQ 0(AX), DI
	MOVQ 8(AX), SI
	MOVQ 16(AX), R15
	MOVQ src+8(FP), AX
	MOVQ 0(AX), R8
	MOVQ 8(AX), R9
	MOVQ 16(AX), R10
	MOVQ y+16(FP), AX
	MOVQ 0(AX), R11
	MOVQ 8(AX), R12
	MOVQ 16(AX), R13
	MOVQ n+24(FP), CX
	MOVQ weights+32(FP), AX
	VPBROADCASTD 0(AX), Y10
	VPBROADCASTD 4(AX), Y11
	VPXOR Y7, Y7, Y7
	MOVL $0x0ff00ff0, AX            // white
	VMOVD AX, X8
	VPBROADCASTD X8, Y8
	MOVL $0x00010001, AX
	VMOVD AX, X9
	VPBROADCASTD X9, Y9
	XORQ DX, DX

loop:
	COLUMN(-2, Y0)
	COLUMN(2, Y1)
	COLUMN(0, Y2)
	VPADDW     Y1, Y0, Y0
	VMOVDQU    (R12)(DX*1), Y1
	VPUNPCKLWD Y0, Y1, Y3
	VPUNPCKHWD Y0, Y1, Y4
	VPUNPCKLWD Y9, Y2, Y5
	VPUNPCKHWD Y9, Y2, Y6
	VPMADDWD   Y10, Y3, Y3
	VPMADDWD   Y10, Y4, Y4
	VPMADDWD   Y11, Y5, Y5
	VPMADDWD   Y11, Y6, Y6
	VPADDD     Y5, Y3, Y3
	VPADDD     Y6, Y4, Y4
	VPSRAD     $10, Y3, Y3
	VPSRAD     $10, Y4, Y4
	VPACKSSDW  Y4, Y3, Y0
	ADD(R8, DI)
	ADD(R9, SI)
	ADD(R10, R15)
	ADDQ       $32, DX
	SUBQ       $16, CX
	JG         loop
	VZEROUPPER
	RET

// Weights of C and Y in a pixel's 20 bits; which bytes of two groups of 40 bits come first.
DATA groups<>+0(SB)/4, $0x00010400
DATA groups<>+4(SB)/4, $0
DATA groups<>+8(SB)/8, $0x0a0b0c0001020304
DATA groups<>+16(SB)/8, $0x8080808080800809
GLOBL groups<>(SB), RODATA|NOPTR, $24

// func uyvpAVX2(dst *byte, y, c *uint16, n int)
TEXT ·uyvpAVX2(SB), NOSPLIT, $0-32
	MOVQ dst+0(FP), DI
	MOVQ y+8(FP), R8
	MOVQ c+16(FP), R9
	MOVQ n+24(FP), CX
	VPBROADCASTD groups<>+0(SB), Y8
	VBROADCASTI128 groups<>+8(SB), Y9
	XORQ DX, DX

loop:
	VMOVDQU    (R8)(DX*1), Y0
	VMOVDQU    (R9)(DX*1), Y1
	VPUNPCKLWD Y0, Y1, Y2
	VPUNPCKHWD Y0, Y1, Y3
	VPMADDWD   Y8, Y2, Y2          // C << 10 | Y
	VPMADDWD   Y8, Y3, Y3
	VPSLLQ     $32, Y2, Y0
	VPSLLQ     $32, Y3, Y1
	VPSRLQ     $12, Y0, Y0
	VPSRLQ     $12, Y1, Y1
	VPSRLQ     $32, Y2, Y2
	VPSRLQ     $32, Y3, Y3
	VPOR       Y2, Y0, Y0
	VPOR       Y3, Y1, Y1
	VPSHUFB    Y9, Y0, Y0
	VPSHUFB    Y9, Y1, Y1
	VMOVDQU    X0, 0(DI)
	VMOVDQU    X1, 10(DI)
	VEXTRACTI128 $1, Y0, 20(DI)
	VEXTRACTI128 $1, Y1, 30(DI)
	ADDQ       $32, DX
	ADDQ       $40, DI
	SUBQ       $16, CX
	JG         loop
	VZEROUPPER
	RET
