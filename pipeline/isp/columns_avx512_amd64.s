// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"
#include "columns_avx512_amd64.h"

// The kernels of columns.go for AVX-512 F and BW.

// func columnsAVX512(even, odd *uint16, src *byte, n int, a *columnsArgs)
TEXT ·columnsAVX512(SB), NOSPLIT, $0-40
	MOVQ even+0(FP), DI
	MOVQ odd+8(FP), R8
	MOVQ src+16(FP), SI
	MOVQ n+24(FP), CX
	MOVQ a+32(FP), AX
	VPBROADCASTW 0(AX), Z8
	VPBROADCASTD 4(AX), Z9
	VPBROADCASTD 8(AX), Z10
	VPBROADCASTD 12(AX), Z11
	VPSLLD       $16, Z11, Z11
	VPBROADCASTD 16(AX), Z12
	VPBROADCASTD 20(AX), Z13
	VPBROADCASTD 24(AX), Z14
	VPBROADCASTD 28(AX), Z15
	MOVL         $0x3fff3fff, AX
	VPBROADCASTD AX, Z16
	MOVQ         $0x0705030106040200, AX
	VMOVQ        AX, X17
	VPMOVZXBQ    X17, Z17

loop:
	VPANDD      (SI), Z8, Z0
	VPANDD      64(SI), Z8, Z1
	PREFETCHT0  4096(SI) // about a line ahead: the processor itself stops at the end of a page
	VPSUBUSW    Z9, Z0, Z0
	VPSUBUSW    Z9, Z1, Z1
	PREFETCHT0  4160(SI)
	VPMADDWD    Z10, Z0, Z2
	VPMADDWD    Z10, Z1, Z3
	VPMADDWD    Z11, Z0, Z4
	VPMADDWD    Z11, Z1, Z5
	VPADDD      Z12, Z2, Z2
	VPADDD      Z12, Z3, Z3
	VPADDD      Z13, Z4, Z4
	VPADDD      Z13, Z5, Z5
	VPSRLVD     Z14, Z2, Z2
	VPSRLVD     Z14, Z3, Z3
	VPSRLVD     Z15, Z4, Z4
	VPSRLVD     Z15, Z5, Z5
	VPACKUSDW   Z3, Z2, Z2 // pixels 0 to 6, 32 to 38, 8 to 14, ...
	VPACKUSDW   Z5, Z4, Z4
	VPMINUW     Z16, Z2, Z2
	VPMINUW     Z16, Z4, Z4
	VPERMQ      Z2, Z17, Z2
	VPERMQ      Z4, Z17, Z4
	VMOVDQU64   Z2, (DI)
	VMOVDQU64   Z4, (R8)
	ADDQ        $128, SI
	ADDQ        $64, DI
	ADDQ        $64, R8
	SUBQ        $64, CX
	JG          loop
	VZEROUPPER
	RET

// SEGMENT512: the numbers of the segments of four times the linear samples p and g, in the lower and the upper bytes of j. It
// changes t and Z9.
#define SEGMENT512(p, g, j, t) \
	VPSRLW     $8, p, j \
	VPTERNLOGD $0xf8, Z22, g, j    /* sample >> 6 */ \
	VPSRLW     $3, j, t \
	VPAVGB     Z20, j, Z9          /* (sample >> 7) + 8 */ \
	VPTERNLOGD $0xea, Z23, Z21, t  /* (sample >> 9) + 32 */ \
	VPMINUB    Z9, j, j \
	VPMINUB    t, j, j

// CODE512: 32 times their bytes in a and b, and a fraction. It changes j and Z7. Look-ups are of words, by the lower six bits.
#define CODE512(p, g, j, a, b) \
	VPSRLW    $8, j, Z7 \
	VMOVDQA64 j, a \
	VMOVDQA64 Z7, b \
	VPERMI2W  Z19, Z18, j \
	VPERMI2W  Z19, Z18, Z7 \
	VPERMI2W  Z17, Z16, a \
	VPERMI2W  Z17, Z16, b \
	VPMULHUW  p, j, j \
	VPMULHUW  g, Z7, Z7 \
	VPADDW    j, a, a \
	VPADDW    Z7, b, b

// PAIRS: words of the bytes of two colours, which are neighbours in R' G' B'.
#define PAIRS(first, second, to) \
	VPSLLW     $3, second, Z0 \
	VPSRLW     $5, first, to \
	VPTERNLOGD $0xf8, Z22, Z0, to

// func colorsAVX512(dst *byte, in *colorsLines, n, odd, blue int, c *wordCurve, w *weave)
TEXT ·colorsAVX512(SB), NOSPLIT, $0-56
	MOVQ  dst+0(FP), DI
	MOVQ  in+8(FP), AX
	POINTERS
	MOVQ  n+16(FP), CX
	MOVQ  odd+24(FP), SI
	MOVQ  blue+32(FP), R15
	MOVQ  c+40(FP), BX
	VMOVDQU64 0(BX), Z16
	VMOVDQU64 64(BX), Z17
	VMOVDQU64 128(BX), Z18
	VMOVDQU64 192(BX), Z19
	MOVQ  w+48(FP), BX
	VMOVDQU64 696(BX), Z26
	VMOVDQU64 760(BX), Z27
	VMOVDQU64 824(BX), Z28
	MOVL  $0x92492492, AX // every third word, from the second one on
	KMOVD AX, K1
	MOVL  $0x24924924, AX // from the third one on
	KMOVD AX, K2
	MOVL  $0x0f0f0f0f, AX
	VPBROADCASTD AX, Z20
	MOVL  $0x1f1f1f1f, AX
	VPBROADCASTD AX, Z21
	MOVL  $0xff00ff00, AX
	VPBROADCASTD AX, Z22
	MOVL  $0x20202020, AX
	VPBROADCASTD AX, Z23
	MOVL  $0x00020002, AX
	VPBROADCASTD AX, TWO
	MOVL  $0xfffcfffc, AX
	VPBROADCASTD AX, FOURS
	MOVQ  SI, BX
	NEIGHBOURS

loop: // look-ups and the rest use other ports of the processor: each colour's look-ups stand behind the next one's beginning
	OWN(Z0, Z1)
	SEGMENT512(Z0, Z1, Z6, Z7)
	GREEN(Z2, Z3, Z4)
	SEGMENT512(Z2, Z3, Z8, Z7)
	CODE512(Z0, Z1, Z6, Z10, Z11)
	THIRD(Z4, Z5, Z6)
	SEGMENT512(Z4, Z5, Z6, Z7)
	CODE512(Z2, Z3, Z8, Z12, Z13)
	CODE512(Z4, Z5, Z6, Z14, Z24)
	TESTQ BX, BX
	JNZ   odd
	TESTQ R15, R15
	JNZ   blue
	PAIRS(Z10, Z12, Z5)
	PAIRS(Z14, Z11, Z6)
	PAIRS(Z13, Z24, Z7)
	JMP   weave

blue:
	PAIRS(Z14, Z12, Z5)
	PAIRS(Z10, Z24, Z6)
	PAIRS(Z13, Z11, Z7)
	JMP   weave

odd:
	TESTQ R15, R15
	JNZ   oddBlue
	PAIRS(Z11, Z13, Z5)
	PAIRS(Z24, Z10, Z6)
	PAIRS(Z12, Z14, Z7)
	JMP   weave

oddBlue:
	PAIRS(Z24, Z13, Z5)
	PAIRS(Z11, Z14, Z6)
	PAIRS(Z12, Z10, Z7)

weave:
	VPERMW    Z5, Z26, Z5
	VPERMW    Z6, Z27, Z6
	VPERMW    Z7, Z28, Z7
	VPBLENDMW Z6, Z5, K1, Z0
	VPBLENDMW Z5, Z7, K1, Z1
	VPBLENDMW Z7, Z6, K1, Z2
	VMOVDQU16 Z7, K2, Z0
	VMOVDQU16 Z6, K2, Z1
	VMOVDQU16 Z5, K2, Z2
	VMOVDQU64 Z0, 0(DI)
	VMOVDQU64 Z1, 64(DI)
	VMOVDQU64 Z2, 128(DI)
	NEXT
	JG loop
	VZEROUPPER
	RET
