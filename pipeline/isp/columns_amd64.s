// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// Bytes 15, 55, 31, 16; words 0xff00, 0x00ff, 2, 0xfffc, 0x3fff; 32 bytes each.
#define CONST(name, at, v) \
DATA name<>+(at+0)(SB)/8, v \
DATA name<>+(at+8)(SB)/8, v \
DATA name<>+(at+16)(SB)/8, v \
DATA name<>+(at+24)(SB)/8, v

CONST(codes, 0, $0x0f0f0f0f0f0f0f0f)
CONST(codes, 32, $0x3737373737373737)
CONST(codes, 64, $0x1f1f1f1f1f1f1f1f)
CONST(codes, 96, $0x1010101010101010)
CONST(codes, 128, $0xff00ff00ff00ff00)
CONST(codes, 160, $0x00ff00ff00ff00ff)
CONST(codes, 192, $0x0002000200020002)
CONST(codes, 224, $0xfffcfffcfffcfffc)
CONST(codes, 256, $0x3fff3fff3fff3fff)
GLOBL codes<>(SB), RODATA|NOPTR, $288

#define C15 codes<>+0(SB)
#define C55 codes<>+32(SB)
#define C31 codes<>+64(SB)
#define C16 codes<>+96(SB)
#define HIGH codes<>+128(SB)
#define LOW codes<>+160(SB)
#define TWO codes<>+192(SB)
#define FOURS codes<>+224(SB)

// func columnsAVX2(even, odd *uint16, src *byte, n int, a *columnsArgs)
TEXT ·columnsAVX2(SB), NOSPLIT, $0-40
	MOVQ even+0(FP), DI
	MOVQ odd+8(FP), R8
	MOVQ src+16(FP), SI
	MOVQ n+24(FP), CX
	MOVQ a+32(FP), AX
	VPBROADCASTW 0(AX), Y8
	VPBROADCASTD 4(AX), Y9
	VPBROADCASTD 8(AX), Y10
	VPBROADCASTD 12(AX), Y11
	VPSLLD       $16, Y11, Y11
	VPBROADCASTD 16(AX), Y12
	VPBROADCASTD 20(AX), Y13
	VPBROADCASTD 24(AX), Y14
	VPBROADCASTD 28(AX), Y15

loop:
	VMOVDQU     (SI), X0
	VINSERTI128 $1, 32(SI), Y0, Y0 // pixels 0 to 7 and 16 to 23
	VMOVDQU     16(SI), X1
	VINSERTI128 $1, 48(SI), Y1, Y1
	VPAND       Y8, Y0, Y0
	VPAND       Y8, Y1, Y1
	VPSUBUSW    Y9, Y0, Y0
	VPSUBUSW    Y9, Y1, Y1
	VPMADDWD    Y10, Y0, Y2
	VPMADDWD    Y10, Y1, Y3
	VPMADDWD    Y11, Y0, Y4
	VPMADDWD    Y11, Y1, Y5
	VPADDD      Y12, Y2, Y2
	VPADDD      Y12, Y3, Y3
	VPADDD      Y13, Y4, Y4
	VPADDD      Y13, Y5, Y5
	VPSRLVD     Y14, Y2, Y2
	VPSRLVD     Y14, Y3, Y3
	VPSRLVD     Y15, Y4, Y4
	VPSRLVD     Y15, Y5, Y5
	VPACKUSDW   Y3, Y2, Y2
	VPACKUSDW   Y5, Y4, Y4
	VPMINUW     codes<>+256(SB), Y2, Y2
	VPMINUW     codes<>+256(SB), Y4, Y4
	VMOVDQU     Y2, (DI)
	VMOVDQU     Y4, (R8)
	PREFETCHT0  4096(SI) // about a line ahead: the processor itself stops at the end of a page
	ADDQ        $64, SI
	ADDQ        $32, DI
	ADDQ        $32, R8
	SUBQ        $32, CX
	JG          loop
	VZEROUPPER
	RET

// For each colour there are four steps. Those of one colour stand between those of the colour before, so that the ports
// for shuffles and for the rest are busy at the same time.
//
// 1. SHIFTED, of four times the linear samples, those of pixels with the own colour in Y6, of the others in Y7: pairs of
// bytes of one and the other, in Y8.
#define SHIFTED \
	VPSRLW $8, Y6, Y8 \
	VPAND  HIGH, Y7, Y9 \
	VPOR   Y9, Y8, Y8              /* sample >> 6 */

// 2. SEGMENT: the number of the segment in Y8.
#define SEGMENT \
	VPAVGB  C15, Y8, Y9            /* (sample >> 7) + 8 */ \
	VPMINUB Y9, Y8, Y8 \
	VPAVGB  C55, Y9, Y9            /* (sample >> 8) + 32 */ \
	VPAVGB  C31, Y9, Y9            /* (sample >> 9) + 32 */ \
	VPMINUB Y9, Y8, Y8 \
	VPAVGB  C31, Y9, Y9            /* (sample >> 10) + 32 */

// 3. WITHIN stores how far in the segment the samples lie. It changes Y6, Y7 and Y9.
#define WITHIN(at) \
	VPSHUFB Y9, Y15, Y9 \
	VPSRLW  $8, Y9, Y0 \
	VPAND   LOW, Y9, Y9 \
	VPMULLW Y0, Y7, Y7 \
	VPMULLW Y9, Y6, Y6 \
	VMOVDQU Y7, (at+32)(R15) \
	VMOVDQU Y6, at(R15)

// 4. Look-ups, in sixteens of the tables: what high, low and rise say in Y1, Y2 and Y3.
#define FIRST \
	VPSHUFB Y8, Y10, Y1 \
	VPSHUFB Y8, Y11, Y2 \
	VPSHUFB Y8, Y12, Y3 \
	VPSUBB  C16, Y8, Y4

#define SECOND \
	VPSHUFB Y4, Y13, Y5 \
	VPXOR   Y5, Y1, Y1 \
	VPSHUFB Y4, Y14, Y5 \
	VPXOR   Y5, Y2, Y2 \
	VBROADCASTI128 (192+80)(BX), Y5 \
	VPSHUFB Y4, Y5, Y5 \
	VPXOR   Y5, Y3, Y3

#define MORE(at) \
	VPSUBB C16, Y4, Y4 \
	VBROADCASTI128 (at)(BX), Y5 \
	VPSHUFB Y4, Y5, Y5 \
	VPXOR   Y5, Y1, Y1 \
	VBROADCASTI128 (at+16)(BX), Y5 \
	VPSHUFB Y4, Y5, Y5 \
	VPXOR   Y5, Y2, Y2 \
	VBROADCASTI128 (at+32)(BX), Y5 \
	VPSHUFB Y4, Y5, Y5 \
	VPXOR   Y5, Y3, Y3

// 5. BYTES, in Y4. It changes Y3.
#define BYTES(at) \
	VPAND     LOW, Y3, Y4 \
	VPSRLW    $8, Y3, Y3 \
	VPMULHRSW at(R15), Y4, Y4 \
	VPMULHRSW (at+32)(R15), Y3, Y3 \
	VPAND     LOW, Y4, Y4 \
	VPSLLW    $8, Y3, Y3 \
	VPOR      Y3, Y4, Y4 \
	VPADDB    Y2, Y4, Y4 \
	VPSRLW    $4, Y4, Y4 \
	VPAND     C15, Y4, Y4 \
	VPADDB    Y1, Y4, Y4

// Sixteen bytes for each half of three vectors of 16 pixels: own colour in Y0, green in Y1, third in Y4.
#define WEAVE(k) \
	VPSHUFB (96*k+0)(R14), Y0, Y2 \
	VPSHUFB (96*k+32)(R14), Y1, Y3 \
	VPSHUFB (96*k+64)(R14), Y4, Y5 \
	VPOR    Y3, Y2, Y2 \
	VPOR    Y5, Y2, Y2 \
	VMOVDQU X2, (16*k)(DI) \
	VEXTRACTI128 $1, Y2, (48+16*k)(DI)

// func colorsAVX2(dst *byte, in *colorsLines, begin, end, odd int, c *byteCurve, w *weave)
TEXT ·colorsAVX2(SB), NOSPLIT, $288-56
	MOVQ dst+0(FP), DI
	MOVQ in+8(FP), AX
	MOVQ 0(AX), R8
	MOVQ 8(AX), R9
	MOVQ 16(AX), R10
	MOVQ 24(AX), R11
	MOVQ 32(AX), R12
	MOVQ 40(AX), R13
	MOVQ begin+16(FP), DX
	MOVQ end+24(FP), CX
	SUBQ DX, CX
	MOVQ odd+32(FP), SI
	MOVQ c+40(FP), BX
	MOVQ w+48(FP), R14
	LEAQ 31(SP), R15
	ANDQ $-32, R15
	SHLQ $1, SI
	MOVQ SI, AX
	NEGQ AX                  // own colour left of a green pixel
	SUBQ $2, SI              // green left of a pixel of the own colour
	ADDQ DX, SI
	ADDQ DX, AX

	VBROADCASTI128 (192+0)(BX), Y10
	VBROADCASTI128 (192+16)(BX), Y11
	VBROADCASTI128 (192+32)(BX), Y12
	VBROADCASTI128 (192+48)(BX), Y13
	VBROADCASTI128 (192+64)(BX), Y14
	VBROADCASTI128 448(BX), Y15

loop:
	VMOVDQU (R8)(DX*1), Y6
	VMOVDQU (R8)(AX*1), Y7
	VPAVGW  2(R8)(AX*1), Y7, Y7
	VPSLLW  $2, Y6, Y6
	VPSLLW  $2, Y7, Y7
	SHIFTED
	SEGMENT
	WITHIN(0)
	FIRST
	VMOVDQU (R9)(SI*1), Y6
	VMOVDQU (R10)(DX*1), Y9
	VPADDW  2(R9)(SI*1), Y6, Y6
	VPADDW  (R12)(DX*1), Y9, Y9
	VMOVDQU (R9)(DX*1), Y7
	VPADDW  TWO, Y6, Y6
	VPADDW  Y9, Y6, Y6
	VPSLLW  $2, Y7, Y7
	VPAND   FOURS, Y6, Y6
	SECOND
	SHIFTED
	MORE(192+96)
	SEGMENT
	MORE(192+144)
	WITHIN(64)
	BYTES(0)
	VMOVDQU Y4, 192(R15)
	FIRST
	VMOVDQU (R11)(SI*1), Y6
	VMOVDQU (R13)(SI*1), Y9
	VPADDW  2(R11)(SI*1), Y6, Y6
	VPADDW  2(R13)(SI*1), Y9, Y9
	VMOVDQU (R11)(DX*1), Y7
	VPADDW  TWO, Y6, Y6
	VPAVGW  (R13)(DX*1), Y7, Y7
	VPADDW  Y9, Y6, Y6
	VPSLLW  $2, Y7, Y7
	VPAND   FOURS, Y6, Y6
	SECOND
	SHIFTED
	MORE(192+96)
	SEGMENT
	MORE(192+144)
	WITHIN(128)
	BYTES(64)
	VMOVDQU Y4, 224(R15)
	FIRST
	SECOND
	MORE(192+96)
	MORE(192+144)
	BYTES(128)
	VMOVDQU 192(R15), Y0
	VMOVDQU 224(R15), Y1
	WEAVE(0)
	WEAVE(1)
	WEAVE(2)
	ADDQ $32, DX
	ADDQ $32, SI
	ADDQ $32, AX
	BYTE $0x0f; BYTE $0x0d; BYTE $0x8f; LONG $2048 // PREFETCHW 2048(DI), where the next line's bytes will go
	BYTE $0x0f; BYTE $0x0d; BYTE $0x8f; LONG $2112 // PREFETCHW 2112(DI)
	ADDQ $96, DI
	SUBQ $32, CX
	JG   loop
	VZEROUPPER
	RET
