// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

DATA linearMax<>+0(SB)/8, $0x3fff3fff3fff3fff
DATA linearMax<>+8(SB)/8, $0x3fff3fff3fff3fff
DATA linearMax<>+16(SB)/8, $0x3fff3fff3fff3fff
DATA linearMax<>+24(SB)/8, $0x3fff3fff3fff3fff
GLOBL linearMax<>(SB), RODATA|NOPTR, $32

DATA ones<>+0(SB)/8, $0x0001000100010001
DATA ones<>+8(SB)/8, $0x0001000100010001
DATA ones<>+16(SB)/8, $0x0001000100010001
DATA ones<>+24(SB)/8, $0x0001000100010001
GLOBL ones<>(SB), RODATA|NOPTR, $32

// Eight bytes each: words at even pixels, words at odd pixels, weights 2 and 1, weights 1 and 0.
DATA pairs<>+0(SB)/8, $0x0000ffff0000ffff
DATA pairs<>+8(SB)/8, $0xffff0000ffff0000
DATA pairs<>+16(SB)/8, $0x0001000200010002
DATA pairs<>+24(SB)/8, $0x0000000100000001
GLOBL pairs<>(SB), RODATA|NOPTR, $32

// func blackAVX2(dst *uint16, src *byte, n int, a *blackArgs)
TEXT ·blackAVX2(SB), NOSPLIT, $0-32
	MOVQ         dst+0(FP), DI
	MOVQ         src+8(FP), SI
	MOVQ         n+16(FP), CX
	MOVQ         a+24(FP), AX
	VPBROADCASTW 0(AX), Y1
	MOVWLZX      2(AX), BX
	VMOVD        BX, X3
	VPBROADCASTD 4(AX), Y2

loop:
	VPAND    (SI), Y1, Y0
	VPSUBUSW Y2, Y0, Y0
	VPSLLW   X3, Y0, Y0
	VMOVDQU  Y0, (DI)
	ADDQ     $32, SI
	ADDQ     $32, DI
	SUBQ     $16, CX
	JG       loop
	VZEROUPPER
	RET

// func gainAVX2(dst, src *uint16, n int, a *gainArgs)
TEXT ·gainAVX2(SB), NOSPLIT, $0-32
	MOVQ         dst+0(FP), DI
	MOVQ         src+8(FP), SI
	MOVQ         n+16(FP), CX
	MOVQ         a+24(FP), AX
	VPBROADCASTD 0(AX), Y8
	VPBROADCASTQ 4(AX), Y9
	VPBROADCASTQ 12(AX), Y10
	VMOVDQU      linearMax<>(SB), Y11

loop:
	VMOVDQU    (SI), Y0
	VPMULLW    Y8, Y0, Y1
	VPMULHUW   Y8, Y0, Y2
	VPUNPCKLWD Y2, Y1, Y3
	VPUNPCKHWD Y2, Y1, Y4
	VPADDD     Y10, Y3, Y3
	VPADDD     Y10, Y4, Y4
	VPSRLVD    Y9, Y3, Y3
	VPSRLVD    Y9, Y4, Y4
	VPACKUSDW  Y4, Y3, Y3
	VPMINUW    Y11, Y3, Y3
	VMOVDQU    Y3, (DI)
	ADDQ       $32, SI
	ADDQ       $32, DI
	SUBQ       $16, CX
	JG         loop
	VZEROUPPER
	RET

// func linearAVX512(dst *uint16, src *byte, n int, k *blackArgs, a *gainArgs)
TEXT ·linearAVX512(SB), NOSPLIT, $0-40
	MOVQ         dst+0(FP), DI
	MOVQ         src+8(FP), SI
	MOVQ         n+16(FP), CX
	MOVQ         k+24(FP), AX
	VPBROADCASTW 0(AX), Z5
	MOVWLZX      2(AX), BX
	VMOVD        BX, X6
	VPBROADCASTD 4(AX), Z7
	MOVQ         a+32(FP), AX
	VPBROADCASTD 0(AX), Z8
	VPBROADCASTQ 4(AX), Z9
	VPBROADCASTQ 12(AX), Z10
	VPBROADCASTW linearMax<>(SB), Z11

loop:
	VPANDD     (SI), Z5, Z0
	VPSUBUSW   Z7, Z0, Z0
	VPSLLW     X6, Z0, Z0
	VPMULLW    Z8, Z0, Z1
	VPMULHUW   Z8, Z0, Z2
	VPUNPCKLWD Z2, Z1, Z3
	VPUNPCKHWD Z2, Z1, Z4
	VPADDD     Z10, Z3, Z3
	VPADDD     Z10, Z4, Z4
	VPSRLVD    Z9, Z3, Z3
	VPSRLVD    Z9, Z4, Z4
	VPACKUSDW  Z4, Z3, Z3
	VPMINUW    Z11, Z3, Z3
	VMOVDQU64  Z3, (DI)
	ADDQ       $64, SI
	ADDQ       $64, DI
	SUBQ       $32, CX
	JG         loop
	VZEROUPPER
	RET

// func suspectsAVX2(dst, up, mid, down *uint16, n, step int, threshold uint16) uint16
TEXT ·suspectsAVX2(SB), NOSPLIT, $0-58
	MOVQ         dst+0(FP), DI
	MOVQ         up+8(FP), R8
	MOVQ         mid+16(FP), R9
	MOVQ         down+24(FP), R10
	MOVQ         n+32(FP), CX
	MOVQ         step+40(FP), DX
	VPBROADCASTW threshold+48(FP), Y8
	VPXOR        Y7, Y7, Y7
	SHLQ         $1, DX
	MOVQ         DX, BX
	NEGQ         BX
	TESTQ        CX, CX
	JE           done

loop:
	VMOVDQU  (R9)(BX*1), Y0
	VMOVDQU  (R9)(DX*1), Y2
	VPMAXUW  Y2, Y0, Y1
	VPMINUW  Y2, Y0, Y0
	VMOVDQU  (R8), Y2
	VPMAXUW  Y2, Y1, Y1
	VPMINUW  Y2, Y0, Y0
	VMOVDQU  (R8)(BX*1), Y2
	VPMAXUW  Y2, Y1, Y1
	VPMINUW  Y2, Y0, Y0
	VMOVDQU  (R8)(DX*1), Y2
	VPMAXUW  Y2, Y1, Y1
	VPMINUW  Y2, Y0, Y0
	VMOVDQU  (R10), Y2
	VPMAXUW  Y2, Y1, Y1
	VPMINUW  Y2, Y0, Y0
	VMOVDQU  (R10)(BX*1), Y2
	VPMAXUW  Y2, Y1, Y1
	VPMINUW  Y2, Y0, Y0
	VMOVDQU  (R10)(DX*1), Y2
	VPMAXUW  Y2, Y1, Y1
	VPMINUW  Y2, Y0, Y0
	VMOVDQU  (R9), Y2
	VPSUBUSW Y1, Y2, Y3           // sample over the highest
	VPSUBUSW Y2, Y0, Y4           // lowest over the sample
	VPSUBUSW Y8, Y3, Y3
	VPSUBUSW Y8, Y4, Y4
	VPOR     Y4, Y3, Y3
	VPOR     Y3, Y7, Y7
	VMOVDQU  Y3, (DI)
	ADDQ     $32, R8
	ADDQ     $32, R9
	ADDQ     $32, R10
	ADDQ     $32, DI
	SUBQ     $16, CX
	JG       loop

done:
	XORQ   AX, AX
	VPTEST Y7, Y7
	SETNE  AX
	MOVW   AX, ret+56(FP)
	VZEROUPPER
	RET

// func bilinearAVX2(own, green, other, up, mid, down *uint16, n, odd int)
TEXT ·bilinearAVX2(SB), NOSPLIT, $0-64
	MOVQ         own+0(FP), R11
	MOVQ         green+8(FP), R12
	MOVQ         other+16(FP), R13
	MOVQ         up+24(FP), R8
	MOVQ         mid+32(FP), R9
	MOVQ         down+40(FP), R10
	MOVQ         n+48(FP), CX
	MOVQ         odd+56(FP), AX
	LEAQ         pairs<>(SB), BX
	VPBROADCASTQ (BX)(AX*8), Y8
	VMOVDQU      ones<>(SB), Y9
	VPADDW       Y9, Y9, Y9
	XORQ         DX, DX

loop:
	VMOVDQU   -2(R9)(DX*1), Y0
	VMOVDQU   2(R9)(DX*1), Y1
	VPAVGW    Y1, Y0, Y2           // own at green
	VPADDW    Y1, Y0, Y0           // W+E
	VMOVDQU   (R8)(DX*1), Y1
	VMOVDQU   (R10)(DX*1), Y3
	VPAVGW    Y3, Y1, Y4           // third at green
	VPADDW    Y3, Y1, Y1           // N+S
	VPADDW    Y1, Y0, Y0
	VPADDW    Y9, Y0, Y0
	VPSRLW    $2, Y0, Y0           // green at own
	VMOVDQU   -2(R8)(DX*1), Y1
	VPADDW    2(R8)(DX*1), Y1, Y1
	VPADDW    -2(R10)(DX*1), Y1, Y1
	VPADDW    2(R10)(DX*1), Y1, Y1
	VPADDW    Y9, Y1, Y1
	VPSRLW    $2, Y1, Y1           // third at own
	VMOVDQU   (R9)(DX*1), Y3
	VPBLENDVB Y8, Y3, Y2, Y2
	VPBLENDVB Y8, Y0, Y3, Y3
	VPBLENDVB Y8, Y1, Y4, Y4
	VMOVDQU   Y2, (R11)(DX*1)
	VMOVDQU   Y3, (R12)(DX*1)
	VMOVDQU   Y4, (R13)(DX*1)
	ADDQ      $32, DX
	SUBQ      $16, CX
	JG        loop
	VZEROUPPER
	RET

// func bilinearAVX512(own, green, other, up, mid, down *uint16, n, odd int)
TEXT ·bilinearAVX512(SB), NOSPLIT, $0-64
	MOVQ  own+0(FP), R11
	MOVQ  green+8(FP), R12
	MOVQ  other+16(FP), R13
	MOVQ  up+24(FP), R8
	MOVQ  mid+32(FP), R9
	MOVQ  down+40(FP), R10
	MOVQ  odd+56(FP), CX
	MOVL  $0x55555555, AX
	SHLL  CX, AX
	KMOVD AX, K1                     // the pixels that have the colour themselves
	MOVQ  n+48(FP), CX
	VPBROADCASTW ones<>(SB), Z9
	VPADDW Z9, Z9, Z9
	XORQ  DX, DX

loop:
	VMOVDQU64 -2(R9)(DX*1), Z0
	VMOVDQU64 2(R9)(DX*1), Z1
	VPAVGW    Z1, Z0, Z2             // own at green
	VPADDW    Z1, Z0, Z0             // W+E
	VMOVDQU64 (R8)(DX*1), Z1
	VMOVDQU64 (R10)(DX*1), Z3
	VPAVGW    Z3, Z1, Z4             // third at green
	VPADDW    Z3, Z1, Z1             // N+S
	VPADDW    Z1, Z0, Z0
	VPADDW    Z9, Z0, Z0
	VMOVDQU64 -2(R8)(DX*1), Z1
	VMOVDQU64 -2(R10)(DX*1), Z5
	VPADDW    2(R8)(DX*1), Z1, Z1
	VPADDW    2(R10)(DX*1), Z5, Z5
	VPADDW    Z5, Z1, Z1
	VPADDW    Z9, Z1, Z1
	VMOVDQU64 (R9)(DX*1), Z3
	VMOVDQU16 Z3, K1, Z2
	VPSRLW    $2, Z0, K1, Z3         // green at own
	VPSRLW    $2, Z1, K1, Z4         // third at own
	VMOVDQU64 Z2, (R11)(DX*1)
	VMOVDQU64 Z3, (R12)(DX*1)
	VMOVDQU64 Z4, (R13)(DX*1)
	ADDQ      $64, DX
	SUBQ      $32, CX
	JG        loop
	VZEROUPPER
	RET

// Adds the products of the pairs of Y4 and Y5 with the weights k0 and k1 to Y0, Y1 and Y2, Y3.
#define TERMS(k0, k1) \
	VPUNPCKLWD Y5, Y4, Y6 \
	VPUNPCKHWD Y5, Y4, Y7 \
	VPMADDWD   k0, Y6, Y4 \
	VPADDD     Y4, Y0, Y0 \
	VPMADDWD   k0, Y7, Y5 \
	VPADDD     Y5, Y1, Y1 \
	VPMADDWD   k1, Y6, Y4 \
	VPADDD     Y4, Y2, Y2 \
	VPMADDWD   k1, Y7, Y5 \
	VPADDD     Y5, Y3, Y3

// func malvarAVX2(own, green, other *uint16, rows *[5]*uint16, n int, k *malvarArgs, odd int)
TEXT ·malvarAVX2(SB), NOSPLIT, $0-56
	MOVQ         own+0(FP), R11
	MOVQ         green+8(FP), R12
	MOVQ         other+16(FP), R13
	MOVQ         rows+24(FP), AX
	MOVQ         0(AX), SI
	MOVQ         8(AX), R8
	MOVQ         16(AX), R9
	MOVQ         24(AX), R10
	MOVQ         32(AX), DI
	MOVQ         n+32(FP), CX
	MOVQ         k+40(FP), AX
	VPBROADCASTQ 0(AX), Y8
	VPBROADCASTQ 8(AX), Y9
	VPBROADCASTQ 16(AX), Y10
	VPBROADCASTQ 24(AX), Y11
	VPBROADCASTQ 32(AX), Y12
	VPBROADCASTQ 40(AX), Y13
	VPBROADCASTQ 48(AX), Y14
	VPBROADCASTQ 56(AX), Y15
	MOVQ         odd+48(FP), AX
	LEAQ         pairs<>(SB), BX
	LEAQ         (BX)(AX*8), BX
	XORQ         DX, DX

loop:
	VMOVDQU    (R9)(DX*1), Y4
	VMOVDQU    -2(R9)(DX*1), Y5
	VPADDW     2(R9)(DX*1), Y5, Y5
	VPUNPCKLWD Y5, Y4, Y6
	VPUNPCKHWD Y5, Y4, Y7
	VPMADDWD   Y8, Y6, Y0
	VPMADDWD   Y8, Y7, Y1
	VPMADDWD   Y12, Y6, Y2
	VPMADDWD   Y12, Y7, Y3
	VMOVDQU    (R8)(DX*1), Y4
	VPADDW     (R10)(DX*1), Y4, Y4
	VMOVDQU    -4(R9)(DX*1), Y5
	VPADDW     4(R9)(DX*1), Y5, Y5
	TERMS(Y9, Y13)
	VMOVDQU    (SI)(DX*1), Y4
	VPADDW     (DI)(DX*1), Y4, Y4
	VMOVDQU    ones<>(SB), Y5
	TERMS(Y10, Y14)
	VMOVDQU    -2(R8)(DX*1), Y4
	VPADDW     2(R8)(DX*1), Y4, Y4
	VMOVDQU    -2(R10)(DX*1), Y5
	VPADDW     2(R10)(DX*1), Y5, Y5
	TERMS(Y11, Y15)
	VPSRAD     $4, Y0, Y0
	VPSRAD     $4, Y1, Y1
	VPSRAD     $4, Y2, Y2
	VPSRAD     $4, Y3, Y3
	VPACKUSDW  Y1, Y0, Y0
	VPACKUSDW  Y3, Y2, Y2
	VMOVDQU    linearMax<>(SB), Y4
	VPMINUW    Y4, Y0, Y0
	VPMINUW    Y4, Y2, Y2
	VPBROADCASTQ (BX), Y5
	VMOVDQU    (R9)(DX*1), Y3
	VPBLENDVB  Y5, Y3, Y0, Y1
	VPBLENDVB  Y5, Y0, Y3, Y3
	VMOVDQU    Y1, (R11)(DX*1)
	VMOVDQU    Y3, (R12)(DX*1)
	VMOVDQU    Y2, (R13)(DX*1)
	ADDQ       $32, DX
	SUBQ       $16, CX
	JG         loop
	VZEROUPPER
	RET

// One colour of the matrix: Y0, Y1 hold R and G, Y2, Y3 hold B and 1.
#define COLOR(rg, b1, at) \
	VPMADDWD  rg, Y0, Y4 \
	VPMADDWD  b1, Y2, Y5 \
	VPADDD    Y5, Y4, Y4 \
	VPMADDWD  rg, Y1, Y5 \
	VPMADDWD  b1, Y3, Y6 \
	VPADDD    Y6, Y5, Y5 \
	VPSRAD    $12, Y4, Y4 \
	VPSRAD    $12, Y5, Y5 \
	VPACKUSDW Y5, Y4, Y4 \
	VPMINUW   Y14, Y4, Y4 \
	VMOVDQU   Y4, (at)

// func matrixAVX2(red, green, blue *uint16, n int, m *[6][2]int16)
TEXT ·matrixAVX2(SB), NOSPLIT, $0-40
	MOVQ         red+0(FP), R8
	MOVQ         green+8(FP), R9
	MOVQ         blue+16(FP), R10
	MOVQ         n+24(FP), CX
	MOVQ         m+32(FP), AX
	VPBROADCASTD 0(AX), Y8
	VPBROADCASTD 4(AX), Y9
	VPBROADCASTD 8(AX), Y10
	VPBROADCASTD 12(AX), Y11
	VPBROADCASTD 16(AX), Y12
	VPBROADCASTD 20(AX), Y13
	VMOVDQU      linearMax<>(SB), Y14
	VMOVDQU      ones<>(SB), Y15

loop:
	VMOVDQU    (R8), Y4
	VMOVDQU    (R9), Y5
	VMOVDQU    (R10), Y6
	VPUNPCKLWD Y5, Y4, Y0
	VPUNPCKHWD Y5, Y4, Y1
	VPUNPCKLWD Y15, Y6, Y2
	VPUNPCKHWD Y15, Y6, Y3
	COLOR(Y8, Y9, R8)
	COLOR(Y10, Y11, R9)
	COLOR(Y12, Y13, R10)
	ADDQ       $32, R8
	ADDQ       $32, R9
	ADDQ       $32, R10
	SUBQ       $16, CX
	JG         loop
	VZEROUPPER
	RET

// Loads luma's arguments from AX: weights in Y8, Y9, offset in Y10, shift in X11. Y12 is 0.
#define LUMAARGS \
	VPBROADCASTD 0(AX), Y8 \
	VPBROADCASTD 4(AX), Y9 \
	VPBROADCASTD 8(AX), Y10 \
	VMOVD        12(AX), X11 \
	VPXOR        Y12, Y12, Y12

// Sixteen pixels at R8, R9, R10, each plus DX, become luma in Y3.
#define LUMA \
	VMOVDQU    (R8)(DX*1), Y0 \
	VMOVDQU    (R9)(DX*1), Y1 \
	VMOVDQU    (R10)(DX*1), Y2 \
	VPUNPCKLWD Y1, Y0, Y3 \
	VPUNPCKHWD Y1, Y0, Y4 \
	VPUNPCKLWD Y12, Y2, Y5 \
	VPUNPCKHWD Y12, Y2, Y6 \
	VPMADDWD   Y8, Y3, Y3 \
	VPMADDWD   Y8, Y4, Y4 \
	VPMADDWD   Y9, Y5, Y5 \
	VPMADDWD   Y9, Y6, Y6 \
	VPADDD     Y5, Y3, Y3 \
	VPADDD     Y6, Y4, Y4 \
	VPADDD     Y10, Y3, Y3 \
	VPADDD     Y10, Y4, Y4 \
	VPSRLD     X11, Y3, Y3 \
	VPSRLD     X11, Y4, Y4 \
	VPACKUSDW  Y4, Y3, Y3

// func lumaAVX2(dst, red, green, blue *uint16, n int, a *lumaArgs)
TEXT ·lumaAVX2(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ red+8(FP), R8
	MOVQ green+16(FP), R9
	MOVQ blue+24(FP), R10
	MOVQ n+32(FP), CX
	MOVQ a+40(FP), AX
	LUMAARGS
	XORQ DX, DX

loop:
	LUMA
	VMOVDQU Y3, (DI)(DX*1)
	ADDQ    $32, DX
	SUBQ    $16, CX
	JG      loop
	VZEROUPPER
	RET

// func lumaBytesAVX2(dst *byte, red, green, blue *uint16, n int, a *lumaArgs)
TEXT ·lumaBytesAVX2(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ red+8(FP), R8
	MOVQ green+16(FP), R9
	MOVQ blue+24(FP), R10
	MOVQ n+32(FP), CX
	MOVQ a+40(FP), AX
	LUMAARGS
	XORQ DX, DX

loop:
	LUMA
	VEXTRACTI128 $1, Y3, X4
	VPACKUSWB    X4, X3, X3
	VMOVDQU      X3, (DI)
	ADDQ         $16, DI
	ADDQ         $32, DX
	SUBQ         $16, CX
	JG           loop
	VZEROUPPER
	RET

// Loads chroma's arguments from AX: weights of Cb in Y8, Y9, of Cr in Y10, Y11, offset in Y12, shift in X13.
#define CHROMAARGS \
	VPBROADCASTD 0(AX), Y8 \
	VPBROADCASTD 4(AX), Y9 \
	VPBROADCASTD 8(AX), Y10 \
	VPBROADCASTD 12(AX), Y11 \
	VPBROADCASTD 16(AX), Y12 \
	VMOVD        20(AX), X13

// Sums of R, G, B in Y0, Y1, Y2, a double word a pixel pair, become Cb in Y3 and Cr in Y5.
#define CHROMA \
	VPSLLD   $16, Y1, Y1 \
	VPOR     Y1, Y0, Y0 \
	VPMADDWD Y8, Y0, Y3 \
	VPMADDWD Y9, Y2, Y4 \
	VPADDD   Y4, Y3, Y3 \
	VPADDD   Y12, Y3, Y3 \
	VPMADDWD Y10, Y0, Y5 \
	VPMADDWD Y11, Y2, Y6 \
	VPADDD   Y6, Y5, Y5 \
	VPADDD   Y12, Y5, Y5 \
	VPSRLD   X13, Y3, Y3 \
	VPSRLD   X13, Y5, Y5

// func chroma422AVX2(dst, red, green, blue *uint16, n int, a *chromaArgs)
TEXT ·chroma422AVX2(SB), NOSPLIT, $0-48
	MOVQ         dst+0(FP), DI
	MOVQ         red+8(FP), R8
	MOVQ         green+16(FP), R9
	MOVQ         blue+24(FP), R10
	MOVQ         n+32(FP), CX
	MOVQ         a+40(FP), AX
	CHROMAARGS
	LEAQ         pairs<>(SB), BX
	VPBROADCASTQ 16(BX), Y14
	VPBROADCASTQ 24(BX), Y15
	XORQ         DX, DX

loop:
	VPMADDWD (R8)(DX*1), Y14, Y0
	VPMADDWD -2(R8)(DX*1), Y15, Y3
	VPADDD   Y3, Y0, Y0
	VPMADDWD (R9)(DX*1), Y14, Y1
	VPMADDWD -2(R9)(DX*1), Y15, Y3
	VPADDD   Y3, Y1, Y1
	VPMADDWD (R10)(DX*1), Y14, Y2
	VPMADDWD -2(R10)(DX*1), Y15, Y3
	VPADDD   Y3, Y2, Y2
	CHROMA
	VPSLLD   $16, Y5, Y5
	VPOR     Y5, Y3, Y3
	VMOVDQU  Y3, (DI)(DX*1)
	ADDQ     $32, DX
	SUBQ     $16, CX
	JG       loop
	VZEROUPPER
	RET

// func chroma420AVX2(cb, cr *byte, step int, p, q *[3]*uint16, n int, a *chromaArgs)
TEXT ·chroma420AVX2(SB), NOSPLIT, $0-56
	MOVQ    cb+0(FP), DI
	MOVQ    cr+8(FP), SI
	MOVQ    step+16(FP), BX
	MOVQ    p+24(FP), AX
	MOVQ    0(AX), R8
	MOVQ    8(AX), R9
	MOVQ    16(AX), R10
	MOVQ    q+32(FP), AX
	MOVQ    0(AX), R11
	MOVQ    8(AX), R12
	MOVQ    16(AX), R13
	MOVQ    n+40(FP), CX
	MOVQ    a+48(FP), AX
	CHROMAARGS
	VMOVDQU ones<>(SB), Y14
	XORQ    DX, DX

loop:
	VMOVDQU   (R8)(DX*1), Y0
	VPADDW    (R11)(DX*1), Y0, Y0
	VPMADDWD  Y14, Y0, Y0
	VMOVDQU   (R9)(DX*1), Y1
	VPADDW    (R12)(DX*1), Y1, Y1
	VPMADDWD  Y14, Y1, Y1
	VMOVDQU   (R10)(DX*1), Y2
	VPADDW    (R13)(DX*1), Y2, Y2
	VPMADDWD  Y14, Y2, Y2
	CHROMA
	ADDQ      $32, DX
	CMPQ      BX, $1
	JNE       pairs
	VPACKUSDW Y5, Y3, Y3
	VPACKUSWB Y3, Y3, Y3
	VEXTRACTI128 $1, Y3, X4
	VPUNPCKLDQ X4, X3, X3
	VMOVQ     X3, (DI)
	VPEXTRQ   $1, X3, (SI)
	ADDQ      $8, DI
	ADDQ      $8, SI
	SUBQ      $16, CX
	JG        loop
	VZEROUPPER
	RET

pairs:
	VPSLLD    $16, Y5, Y5
	VPOR      Y5, Y3, Y3
	VEXTRACTI128 $1, Y3, X4
	VPACKUSWB X4, X3, X3
	VMOVDQU   X3, (DI)
	ADDQ      $16, DI
	SUBQ      $16, CX
	JG        loop
	VZEROUPPER
	RET

// func uyvyAVX2(dst *byte, red, green, blue *uint16, n int, y *lumaArgs, c *chromaArgs)
//
// The shift of chroma is that of 8 bits. The weights of Cb and of Cr add up to 0, so that the sums of red and blue less that
// of green are multiplied.
TEXT ·uyvyAVX2(SB), NOSPLIT, $0-56
	MOVQ         dst+0(FP), DI
	MOVQ         red+8(FP), R8
	MOVQ         green+16(FP), R9
	MOVQ         blue+24(FP), R10
	MOVQ         n+32(FP), CX
	MOVQ         y+40(FP), AX
	LUMAARGS
	MOVQ         c+48(FP), AX
	VMOVQ        0(AX), X13
	VMOVQ        8(AX), X14
	VPSHUFLW     $0x88, X13, X13
	VPSHUFLW     $0x88, X14, X14
	VPBROADCASTD X13, Y13            // weights of red and blue for Cb
	VPBROADCASTD X14, Y14            // and for Cr
	VPBROADCASTD 16(AX), Y15
	VMOVDQU      ones<>(SB), Y7
	XORQ         DX, DX

loop:
	LUMA
	VPADDW   -2(R8)(DX*1), Y0, Y0
	VPADDW   -2(R9)(DX*1), Y1, Y1
	VPADDW   -2(R10)(DX*1), Y2, Y2
	VPSUBW   Y1, Y0, Y0
	VPSUBW   Y1, Y2, Y2
	VPMADDWD Y7, Y0, Y0
	VPMADDWD Y7, Y2, Y2
	VPSLLD   $16, Y2, Y2
	VPBLENDW $0xaa, Y2, Y0, Y0
	VPMADDWD Y13, Y0, Y1
	VPMADDWD Y14, Y0, Y2
	VPADDD   Y15, Y1, Y1
	VPADDD   Y15, Y2, Y2
	VPSRLD   $21, Y1, Y1
	VPSRLD   $21, Y2, Y2
	VPSLLD   $16, Y2, Y2
	VPSLLW   $8, Y3, Y3
	VPOR     Y2, Y1, Y1
	VPOR     Y3, Y1, Y1
	VMOVDQU  Y1, (DI)(DX*1)
	ADDQ     $32, DX
	SUBQ     $16, CX
	JG       loop
	VZEROUPPER
	RET

// Which byte of R, G, B goes to which of the three times sixteen of R' G' B'.
DATA interleave<>+0(SB)/8, $0x8002808001808000
DATA interleave<>+8(SB)/8, $0x0580800480800380
DATA interleave<>+16(SB)/8, $0x0280800180800080
DATA interleave<>+24(SB)/8, $0x8080048080038080
DATA interleave<>+32(SB)/8, $0x8080018080008080
DATA interleave<>+40(SB)/8, $0x8004808003808002
DATA interleave<>+48(SB)/8, $0x8080078080068080
DATA interleave<>+56(SB)/8, $0x800a808009808008
DATA interleave<>+64(SB)/8, $0x8007808006808005
DATA interleave<>+72(SB)/8, $0x0a80800980800880
DATA interleave<>+80(SB)/8, $0x0780800680800580
DATA interleave<>+88(SB)/8, $0x8080098080088080
DATA interleave<>+96(SB)/8, $0x0d80800c80800b80
DATA interleave<>+104(SB)/8, $0x80800f80800e8080
DATA interleave<>+112(SB)/8, $0x80800c80800b8080
DATA interleave<>+120(SB)/8, $0x800f80800e80800d
DATA interleave<>+128(SB)/8, $0x800c80800b80800a
DATA interleave<>+136(SB)/8, $0x0f80800e80800d80
GLOBL interleave<>(SB), RODATA|NOPTR, $144

// HALF puts the shift into AX and X4, and half of its power of two into the lowest word of X6.
#define HALF \
	MOVQ   shift+40(FP), AX \
	VMOVQ  AX, X4 \
	MOVL   $1, BX \
	VMOVD  BX, X6 \
	VPSLLW X4, X6, X6 \
	VPSRLW $1, X6, X6

// func rgb24AVX2(dst *byte, red, green, blue *uint16, n, shift int)
TEXT ·rgb24AVX2(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ red+8(FP), R8
	MOVQ green+16(FP), R9
	MOVQ blue+24(FP), R10
	MOVQ n+32(FP), CX
	HALF
	VPBROADCASTW X6, X6
	LEAQ interleave<>(SB), BX
	XORQ DX, DX
	VMOVDQU 0(BX), X7
	VMOVDQU 16(BX), X8
	VMOVDQU 32(BX), X9
	VMOVDQU 48(BX), X10
	VMOVDQU 64(BX), X11
	VMOVDQU 80(BX), X12
	VMOVDQU 96(BX), X13
	VMOVDQU 112(BX), X14
	VMOVDQU 128(BX), X15

loop:
	VMOVQ     AX, X4
	VPADDW    (R8)(DX*1), X6, X0
	VPADDW    16(R8)(DX*1), X6, X3
	VPSRLW    X4, X0, X0
	VPSRLW    X4, X3, X3
	VPACKUSWB X3, X0, X0
	VPADDW    (R9)(DX*1), X6, X1
	VPADDW    16(R9)(DX*1), X6, X3
	VPSRLW    X4, X1, X1
	VPSRLW    X4, X3, X3
	VPACKUSWB X3, X1, X1
	VPADDW    (R10)(DX*1), X6, X2
	VPADDW    16(R10)(DX*1), X6, X3
	VPSRLW    X4, X2, X2
	VPSRLW    X4, X3, X3
	VPACKUSWB X3, X2, X2
	VPSHUFB X7, X0, X3
	VPSHUFB X8, X1, X4
	VPSHUFB X9, X2, X5
	VPOR X4, X3, X3
	VPOR X5, X3, X3
	VMOVDQU X3, 0(DI)
	VPSHUFB X10, X0, X3
	VPSHUFB X11, X1, X4
	VPSHUFB X12, X2, X5
	VPOR X4, X3, X3
	VPOR X5, X3, X3
	VMOVDQU X3, 16(DI)
	VPSHUFB X13, X0, X3
	VPSHUFB X14, X1, X4
	VPSHUFB X15, X2, X5
	VPOR X4, X3, X3
	VPOR X5, X3, X3
	VMOVDQU X3, 32(DI)
	ADDQ      $32, DX
	ADDQ      $48, DI
	SUBQ      $16, CX
	JG        loop
	VZEROUPPER
	RET

// Which byte of R and G, and of B, goes where in three times 64 of R' G' B', behind the even bytes of two vectors.
DATA spread<>+0(SB)/8, $0x0e0c0a0806040200
DATA spread<>+8(SB)/8, $0x1e1c1a1816141210
DATA spread<>+16(SB)/8, $0x2e2c2a2826242220
DATA spread<>+24(SB)/8, $0x3e3c3a3836343230
DATA spread<>+32(SB)/8, $0x4e4c4a4846444240
DATA spread<>+40(SB)/8, $0x5e5c5a5856545250
DATA spread<>+48(SB)/8, $0x6e6c6a6866646260
DATA spread<>+56(SB)/8, $0x7e7c7a7876747270
DATA spread<>+64(SB)/8, $0x4202004101004000
DATA spread<>+72(SB)/8, $0x0500440400430300
DATA spread<>+80(SB)/8, $0x0047070046060045
DATA spread<>+88(SB)/8, $0x4a0a004909004808
DATA spread<>+96(SB)/8, $0x0d004c0c004b0b00
DATA spread<>+104(SB)/8, $0x004f0f004e0e004d
DATA spread<>+112(SB)/8, $0x5212005111005010
DATA spread<>+120(SB)/8, $0x1500541400531300
DATA spread<>+128(SB)/8, $0x0057170056160055
DATA spread<>+136(SB)/8, $0x5a1a005919005818
DATA spread<>+144(SB)/8, $0x1d005c1c005b1b00
DATA spread<>+152(SB)/8, $0x005f1f005e1e005d
DATA spread<>+160(SB)/8, $0x6222006121006020
DATA spread<>+168(SB)/8, $0x2500642400632300
DATA spread<>+176(SB)/8, $0x0067270066260065
DATA spread<>+184(SB)/8, $0x6a2a006929006828
DATA spread<>+192(SB)/8, $0x2d006c2c006b2b00
DATA spread<>+200(SB)/8, $0x006f2f006e2e006d
DATA spread<>+208(SB)/8, $0x7232007131007030
DATA spread<>+216(SB)/8, $0x3500743400733300
DATA spread<>+224(SB)/8, $0x0077370076360075
DATA spread<>+232(SB)/8, $0x7a3a007939007838
DATA spread<>+240(SB)/8, $0x3d007c3c007b3b00
DATA spread<>+248(SB)/8, $0x007f3f007e3e007d
DATA spread<>+256(SB)/8, $0x0202010101000000
DATA spread<>+264(SB)/8, $0x0504040403030302
DATA spread<>+272(SB)/8, $0x0707070606060505
DATA spread<>+280(SB)/8, $0x0a0a090909080808
DATA spread<>+288(SB)/8, $0x0d0c0c0c0b0b0b0a
DATA spread<>+296(SB)/8, $0x0f0f0f0e0e0e0d0d
DATA spread<>+304(SB)/8, $0x1212111111101010
DATA spread<>+312(SB)/8, $0x1514141413131312
DATA spread<>+320(SB)/8, $0x1717171616161515
DATA spread<>+328(SB)/8, $0x1a1a191919181818
DATA spread<>+336(SB)/8, $0x1d1c1c1c1b1b1b1a
DATA spread<>+344(SB)/8, $0x1f1f1f1e1e1e1d1d
DATA spread<>+352(SB)/8, $0x2222212121202020
DATA spread<>+360(SB)/8, $0x2524242423232322
DATA spread<>+368(SB)/8, $0x2727272626262525
DATA spread<>+376(SB)/8, $0x2a2a292929282828
DATA spread<>+384(SB)/8, $0x2d2c2c2c2b2b2b2a
DATA spread<>+392(SB)/8, $0x2f2f2f2e2e2e2d2d
DATA spread<>+400(SB)/8, $0x3232313131303030
DATA spread<>+408(SB)/8, $0x3534343433333332
DATA spread<>+416(SB)/8, $0x3737373636363535
DATA spread<>+424(SB)/8, $0x3a3a393939383838
DATA spread<>+432(SB)/8, $0x3d3c3c3c3b3b3b3a
DATA spread<>+440(SB)/8, $0x3f3f3f3e3e3e3d3d
GLOBL spread<>(SB), RODATA|NOPTR, $448

// func rgb24AVX512(dst *byte, red, green, blue *uint16, n, shift int)
TEXT ·rgb24AVX512(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ red+8(FP), R8
	MOVQ green+16(FP), R9
	MOVQ blue+24(FP), R10
	MOVQ n+32(FP), CX
	HALF
	VPBROADCASTW X6, Z16
	LEAQ spread<>(SB), R11
	VMOVDQU64 0(R11), Z17
	VMOVDQU64 64(R11), Z18
	VMOVDQU64 128(R11), Z19
	VMOVDQU64 192(R11), Z20
	VMOVDQU64 256(R11), Z21
	VMOVDQU64 320(R11), Z22
	VMOVDQU64 384(R11), Z23
	MOVQ $0x4924924924924924, AX
	KMOVQ AX, K1
	MOVQ $0x2492492492492492, AX
	KMOVQ AX, K2
	MOVQ $0x9249249249249249, AX
	KMOVQ AX, K3
	XORQ DX, DX

loop:
	VPADDW   (R8)(DX*1), Z16, Z0
	VPADDW   64(R8)(DX*1), Z16, Z3
	VPSRLW   X4, Z0, Z0
	VPSRLW   X4, Z3, Z3
	VPERMT2B Z3, Z17, Z0
	VPADDW   (R9)(DX*1), Z16, Z1
	VPADDW   64(R9)(DX*1), Z16, Z3
	VPSRLW   X4, Z1, Z1
	VPSRLW   X4, Z3, Z3
	VPERMT2B Z3, Z17, Z1
	VPADDW   (R10)(DX*1), Z16, Z2
	VPADDW   64(R10)(DX*1), Z16, Z3
	VPSRLW   X4, Z2, Z2
	VPSRLW   X4, Z3, Z3
	VPERMT2B Z3, Z17, Z2
	VMOVDQA64 Z18, Z5
	VPERMI2B Z1, Z0, Z5
	VPERMB   Z2, Z21, K1, Z5
	VMOVDQU64 Z5, 0(DI)
	VMOVDQA64 Z19, Z5
	VPERMI2B Z1, Z0, Z5
	VPERMB   Z2, Z22, K2, Z5
	VMOVDQU64 Z5, 64(DI)
	VMOVDQA64 Z20, Z5
	VPERMI2B Z1, Z0, Z5
	VPERMB   Z2, Z23, K3, Z5
	VMOVDQU64 Z5, 128(DI)
	ADDQ     $128, DX
	ADDQ     $192, DI
	SUBQ     $64, CX
	JG       loop
	VZEROUPPER
	RET

// Bytes: what is averaged with the upper bytes of four times a sample to get the number of its segment, what makes numbers
// from 16 on negative, and 16.
DATA ranges<>+0(SB)/8, $0x0f0f0f0f0f0f0f0f
DATA ranges<>+8(SB)/8, $0x3737373737373737
DATA ranges<>+16(SB)/8, $0x1f1f1f1f1f1f1f1f
DATA ranges<>+24(SB)/8, $0x7070707070707070
DATA ranges<>+32(SB)/8, $0x1010101010101010
GLOBL ranges<>(SB), RODATA|NOPTR, $40

// The number of the segment in each byte of x, from the upper bytes of four times the samples; y is changed.
#define SEGMENT(x, y, c15, c55, c31) \
	VPAVGB  c15, x, y /* (sample >> 7) + 8 */ \
	VPMINUB y, x, x \
	VPAVGB  c55, y, y \
	VPAVGB  c31, y, y /* (sample >> 9) + 32 */ \
	VPMINUB y, x, x

// The 64 words whose lower bytes are at off(AX), and whose upper ones follow, in x and y; Z0 and Z1 are changed.
#define TABLE(off, x, y) \
	VPMOVZXBW off(AX), x \
	VPMOVZXBW off+32(AX), y \
	VPMOVZXBW off+64(AX), Z0 \
	VPMOVZXBW off+96(AX), Z1 \
	VPSLLW    $8, Z0, Z0 \
	VPSLLW    $8, Z1, Z1 \
	VPORD     Z0, x, x \
	VPORD     Z1, y, y

// func toneAVX512(row *uint16, n int, c *signedCurve)
TEXT ·toneAVX512(SB), NOSPLIT, $0-24
	MOVQ         row+0(FP), DI
	MOVQ         n+8(FP), CX
	MOVQ         c+16(FP), AX
	LEAQ         ranges<>(SB), BX
	TABLE(0, Z20, Z21)                 // base
	TABLE(128, Z22, Z23)               // rise
	VPBROADCASTQ 0(BX), Z24
	VPBROADCASTQ 8(BX), Z25
	VPBROADCASTQ 16(BX), Z26

loop:
	VPSLLW    $2, (DI), Z0
	VPSRLW    $8, Z0, Z1
	SEGMENT(Z1, Z2, Z24, Z25, Z26)
	VMOVDQA64 Z1, Z2
	VPERMI2W  Z21, Z20, Z1
	VPERMI2W  Z23, Z22, Z2
	VPMULHRSW Z0, Z2, Z2
	VPADDW    Z2, Z1, Z1
	VMOVDQU64 Z1, (DI)
	ADDQ      $64, DI
	SUBQ      $32, CX
	JG        loop
	VZEROUPPER
	RET

// 32 bytes of the table at off(AX), by the numbers in Y5 to Y8, in y; Y9 is changed.
#define LOOKUP(off, y) \
	VBROADCASTI128 off(AX), y \
	VPSHUFB        Y5, y, y \
	VBROADCASTI128 off+16(AX), Y9 \
	VPSHUFB        Y6, Y9, Y9 \
	VPOR           Y9, y, y \
	VBROADCASTI128 off+32(AX), Y9 \
	VPSHUFB        Y7, Y9, Y9 \
	VPOR           Y9, y, y \
	VBROADCASTI128 off+48(AX), Y9 \
	VPSHUFB        Y8, Y9, Y9 \
	VPOR           Y9, y, y

// func toneAVX2(row *uint16, n int, c *signedCurve)
TEXT ·toneAVX2(SB), NOSPLIT, $0-24
	MOVQ         row+0(FP), DI
	MOVQ         n+8(FP), CX
	MOVQ         c+16(FP), AX
	LEAQ         ranges<>(SB), BX
	VPBROADCASTQ 0(BX), Y15
	VPBROADCASTQ 8(BX), Y14
	VPBROADCASTQ 16(BX), Y13
	VPBROADCASTQ 24(BX), Y12
	VPBROADCASTQ 32(BX), Y11

loop:
	VMOVDQU    (DI), Y3
	VMOVDQU    32(DI), Y4
	VPSLLW     $2, Y3, Y3
	VPSLLW     $2, Y4, Y4
	VPSRLW     $8, Y3, Y0
	VPSRLW     $8, Y4, Y1
	VPACKUSWB  Y1, Y0, Y2
	SEGMENT(Y2, Y0, Y15, Y14, Y13)
	VPADDUSB   Y12, Y2, Y5
	VPSUBB     Y11, Y2, Y2
	VPADDUSB   Y12, Y2, Y6
	VPSUBB     Y11, Y2, Y2
	VPADDUSB   Y12, Y2, Y7
	VPSUBB     Y11, Y2, Y2
	VPADDUSB   Y12, Y2, Y8
	LOOKUP(128, Y0)
	LOOKUP(192, Y1)
	VPUNPCKLBW Y1, Y0, Y2
	VPUNPCKHBW Y1, Y0, Y10
	VPMULHRSW  Y3, Y2, Y3
	VPMULHRSW  Y4, Y10, Y4
	LOOKUP(0, Y0)
	LOOKUP(64, Y1)
	VPUNPCKLBW Y1, Y0, Y2
	VPUNPCKHBW Y1, Y0, Y10
	VPADDW     Y3, Y2, Y2
	VPADDW     Y4, Y10, Y10
	VMOVDQU    Y2, (DI)
	VMOVDQU    Y10, 32(DI)
	ADDQ       $64, DI
	SUBQ       $32, CX
	JG         loop
	VZEROUPPER
	RET

// func shadeAVX2(dst, src, upper, lower *uint16, n int, weight *[2]int16)
TEXT ·shadeAVX2(SB), NOSPLIT, $0-48
	MOVQ         dst+0(FP), DI
	MOVQ         src+8(FP), SI
	MOVQ         upper+16(FP), R8
	MOVQ         lower+24(FP), R9
	MOVQ         n+32(FP), CX
	MOVQ         weight+40(FP), AX
	VPBROADCASTD (AX), Y8
	VMOVDQU      ones<>(SB), Y9
	VPSRLD       $16, Y9, Y9
	VPSLLD       $7, Y9, Y10         // 128
	VPSLLD       $11, Y9, Y11        // 2048
	XORQ         DX, DX

loop:
	VMOVDQU    (R8)(DX*1), Y0
	VMOVDQU    (R9)(DX*1), Y1
	VPUNPCKLWD Y1, Y0, Y2
	VPUNPCKHWD Y1, Y0, Y3
	VPMADDWD   Y8, Y2, Y2
	VPMADDWD   Y8, Y3, Y3
	VPADDD     Y10, Y2, Y2
	VPADDD     Y10, Y3, Y3
	VPSRLD     $8, Y2, Y2
	VPSRLD     $8, Y3, Y3
	VPACKUSDW  Y3, Y2, Y2           // gains
	VMOVDQU    (SI)(DX*1), Y0
	VPMULLW    Y2, Y0, Y1
	VPMULHUW   Y2, Y0, Y3
	VPUNPCKLWD Y3, Y1, Y0
	VPUNPCKHWD Y3, Y1, Y1
	VPADDD     Y11, Y0, Y0
	VPADDD     Y11, Y1, Y1
	VPSRLD     $12, Y0, Y0
	VPSRLD     $12, Y1, Y1
	VPACKUSDW  Y1, Y0, Y0
	VMOVDQU    Y0, (DI)(DX*1)
	ADDQ       $32, DX
	SUBQ       $16, CX
	JG         loop
	VZEROUPPER
	RET
