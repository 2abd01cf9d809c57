// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"
#include "columns_avx512_amd64.h"

// CODE512 is what CODE of columns_amd64.s does, for 64 pixels: bytes in Z1 out of four times the linear samples, those of
// pixels with the own colour in Z0, of the others in Z1. It changes Z0 and Z2 to Z8.
#define CODE512 \
	VPSRLW     $8, Z0, Z2 \
	VPTERNLOGD $0xf8, Z23, Z1, Z2  /* sample >> 6 */ \
	VPAVGB     Z20, Z2, Z3         /* (sample >> 7) + 8 */ \
	VPMINUB    Z3, Z2, Z2 \
	VPAVGB     Z21, Z3, Z3         /* (sample >> 8) + 32 */ \
	VPAVGB     Z22, Z3, Z3         /* (sample >> 9) + 32 */ \
	VPMINUB    Z3, Z2, Z2          /* number of the segment */ \
	VPERMB     Z19, Z2, Z7         /* factors */ \
	VPERMB     Z18, Z2, Z6         /* rise */ \
	VPERMB     Z17, Z2, Z5         /* low */ \
	VPERMB     Z16, Z2, Z4         /* high */ \
	VPANDD     Z24, Z7, Z8 \
	VPSRLW     $8, Z7, Z7 \
	VPMULLW    Z8, Z0, Z0          /* how far in the segment */ \
	VPMULLW    Z7, Z1, Z1 \
	VPANDD     Z24, Z6, Z8 \
	VPSRLW     $8, Z6, Z6 \
	VPMULHRSW  Z8, Z0, Z0 \
	VPMULHRSW  Z6, Z1, Z1 \
	VPSLLW     $8, Z1, Z1 \
	VPTERNLOGD $0xf8, Z24, Z0, Z1 \
	VPADDB     Z5, Z1, Z1 \
	VPSRLW     $4, Z1, Z1 \
	VPANDD     Z20, Z1, Z1 \
	VPADDB     Z4, Z1, Z1

// A third of R' G' B' of 64 pixels.
#define WEAVE512(pair, third, mask, at) \
	VMOVDQA64 pair, Z5 \
	VPERMI2B  Z10, Z9, Z5 \
	VPERMB    Z1, third, mask, Z5 \
	VMOVDQU64 Z5, at(DI)

// func colorsVBMI(dst *byte, in *colorsLines, n, odd int, c *byteCurve, w *weave)
TEXT ·colorsVBMI(SB), NOSPLIT, $0-48
	MOVQ  dst+0(FP), DI
	MOVQ  in+8(FP), AX
	POINTERS
	MOVQ  n+16(FP), CX
	MOVQ  odd+24(FP), SI
	MOVQ  c+32(FP), BX
	VMOVDQU64 0(BX), Z16
	VMOVDQU64 64(BX), Z17
	VMOVDQU64 128(BX), Z18
	VMOVDQU64 384(BX), Z19
	MOVQ  w+40(FP), BX
	VMOVDQU64 288(BX), Z26
	VMOVDQU64 352(BX), Z27
	VMOVDQU64 416(BX), Z28
	VMOVDQU64 480(BX), Z29
	VMOVDQU64 544(BX), Z30
	VMOVDQU64 608(BX), Z31
	KMOVQ 672(BX), K1
	KMOVQ 680(BX), K2
	KMOVQ 688(BX), K3
	MOVL  $0x0f0f0f0f, AX
	VPBROADCASTD AX, Z20
	MOVL  $0x37373737, AX
	VPBROADCASTD AX, Z21
	MOVL  $0x1f1f1f1f, AX
	VPBROADCASTD AX, Z22
	MOVL  $0xff00ff00, AX
	VPBROADCASTD AX, Z23
	MOVL  $0x00ff00ff, AX
	VPBROADCASTD AX, Z24
	MOVL  $0x00020002, AX
	VPBROADCASTD AX, TWO
	MOVL  $0xfffcfffc, AX
	VPBROADCASTD AX, FOURS
	NEIGHBOURS

loop:
	OWN(Z0, Z1)
	CODE512
	VMOVDQA64 Z1, Z9
	GREEN(Z0, Z1, Z2)
	CODE512
	VMOVDQA64 Z1, Z10
	THIRD(Z0, Z1, Z2)
	CODE512
	WEAVE512(Z26, Z29, K1, 0)
	WEAVE512(Z27, Z30, K2, 64)
	WEAVE512(Z28, Z31, K3, 128)
	NEXT
	JG loop
	VZEROUPPER
	RET
