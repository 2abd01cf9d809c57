// SPDX-License-Identifier: Apache-2.0

#include "textflag.h"

// In each half of a vector: even words, then odd words; odd words, then even words.
DATA parts<>+0(SB)/8, $0x0d0c090805040100
DATA parts<>+8(SB)/8, $0x0f0e0b0a07060302
DATA parts<>+16(SB)/8, $0x0f0e0b0a07060302
DATA parts<>+24(SB)/8, $0x0d0c090805040100
GLOBL parts<>(SB), RODATA|NOPTR, $32

// Double words of the lower and of the upper half of a vector alternately.
DATA halves<>+0(SB)/8, $0x0000000400000000
DATA halves<>+8(SB)/8, $0x0000000500000001
DATA halves<>+16(SB)/8, $0x0000000600000002
DATA halves<>+24(SB)/8, $0x0000000700000003
GLOBL halves<>(SB), RODATA|NOPTR, $32

// func halfAVX2(even, green, odd, a, b *uint16, n int)
TEXT ·halfAVX2(SB), NOSPLIT, $0-48
	MOVQ           even+0(FP), R8
	MOVQ           green+8(FP), R9
	MOVQ           odd+16(FP), R10
	MOVQ           a+24(FP), SI
	MOVQ           b+32(FP), DI
	MOVQ           n+40(FP), CX
	VBROADCASTI128 parts<>+0(SB), Y8
	VBROADCASTI128 parts<>+16(SB), Y9
	XORQ           DX, DX

loop:
	VMOVDQU     0(SI)(DX*2), Y0
	VMOVDQU     32(SI)(DX*2), Y1
	VMOVDQU     0(DI)(DX*2), Y2
	VMOVDQU     32(DI)(DX*2), Y3
	VPSHUFB     Y8, Y0, Y0
	VPSHUFB     Y8, Y1, Y1
	VPSHUFB     Y9, Y2, Y2
	VPSHUFB     Y9, Y3, Y3
	VPUNPCKLQDQ Y1, Y0, Y4
	VPUNPCKLQDQ Y3, Y2, Y5
	VPAVGW      Y2, Y0, Y0
	VPAVGW      Y3, Y1, Y1
	VPUNPCKHQDQ Y1, Y0, Y0
	VPERMQ      $0xd8, Y4, Y4
	VPERMQ      $0xd8, Y0, Y0
	VPERMQ      $0xd8, Y5, Y5
	VMOVDQU     Y4, (R8)(DX*1)
	VMOVDQU     Y0, (R9)(DX*1)
	VMOVDQU     Y5, (R10)(DX*1)
	ADDQ        $32, DX
	SUBQ        $16, CX
	JG          loop
	VZEROUPPER
	RET

// func halfMonoAVX2(dst, a, b *uint16, n int)
TEXT ·halfMonoAVX2(SB), NOSPLIT, $0-32
	MOVQ     dst+0(FP), R8
	MOVQ     a+8(FP), SI
	MOVQ     b+16(FP), DI
	MOVQ     n+24(FP), CX
	VPCMPEQW Y8, Y8, Y8
	VPSRLW   $15, Y8, Y8
	VPADDW   Y8, Y8, Y8      // 2
	XORQ     DX, DX

loop:
	VMOVDQU 0(SI)(DX*2), Y0
	VMOVDQU 32(SI)(DX*2), Y1
	VPADDW  0(DI)(DX*2), Y0, Y0
	VPADDW  32(DI)(DX*2), Y1, Y1
	VPHADDW Y1, Y0, Y0
	VPERMQ  $0xd8, Y0, Y0
	VPADDW  Y8, Y0, Y0
	VPSRLW  $2, Y0, Y0
	VMOVDQU Y0, (R8)(DX*1)
	ADDQ    $32, DX
	SUBQ    $16, CX
	JG      loop
	VZEROUPPER
	RET

// LINES puts the addresses of four lines into SI, DI, R11 and R12.
#define LINES(lines) \
	MOVQ lines, AX \
	MOVQ 0(AX), SI \
	MOVQ 8(AX), DI \
	MOVQ 16(AX), R11 \
	MOVQ 24(AX), R12

// func quarterAVX2(even, green, odd *uint16, lines *[4]*uint16, n int)
TEXT ·quarterAVX2(SB), NOSPLIT, $0-40
	MOVQ     even+0(FP), R8
	MOVQ     green+8(FP), R9
	MOVQ     odd+16(FP), R10
	LINES(lines+24(FP))
	MOVQ     n+32(FP), CX
	VPCMPEQW Y8, Y8, Y8
	VPSRLD   $16, Y8, Y8
	VPSRLD   $15, Y8, Y9
	VPSLLD   $1, Y9, Y9               // 2
	VPSLLD   $1, Y9, Y10              // 4
	VMOVDQU  halves<>(SB), Y11
	XORQ     DX, DX

loop:
	VMOVDQU   0(SI)(DX*4), Y0
	VMOVDQU   32(SI)(DX*4), Y1
	VPADDW    0(DI)(DX*4), Y0, Y0
	VPADDW    32(DI)(DX*4), Y1, Y1
	VPHADDD   Y1, Y0, Y0              // a double word a pixel: sum of even and of odd samples
	VMOVDQU   0(R11)(DX*4), Y1
	VMOVDQU   32(R11)(DX*4), Y2
	VPADDW    0(R12)(DX*4), Y1, Y1
	VPADDW    32(R12)(DX*4), Y2, Y2
	VPHADDD   Y2, Y1, Y1
	VPAND     Y8, Y0, Y2
	VPSRLD    $16, Y0, Y0
	VPAND     Y8, Y1, Y3
	VPSRLD    $16, Y1, Y1
	VPADDD    Y3, Y0, Y0
	VPADDD    Y10, Y0, Y0
	VPADDD    Y9, Y1, Y1
	VPADDD    Y9, Y2, Y2
	VPSRLD    $3, Y0, Y0
	VPSRLD    $2, Y1, Y1
	VPSRLD    $2, Y2, Y2
	VPACKUSDW Y1, Y2, Y2
	VPACKUSDW Y0, Y0, Y0
	VPERMD    Y2, Y11, Y2
	VPERMD    Y0, Y11, Y0
	VMOVDQU   X2, (R8)(DX*1)
	VMOVDQU   X0, (R9)(DX*1)
	VEXTRACTI128 $1, Y2, (R10)(DX*1)
	ADDQ      $16, DX
	SUBQ      $8, CX
	JG        loop
	VZEROUPPER
	RET

// func quarterMonoAVX2(dst *uint16, lines *[4]*uint16, n int)
TEXT ·quarterMonoAVX2(SB), NOSPLIT, $0-24
	MOVQ     dst+0(FP), R8
	LINES(lines+8(FP))
	MOVQ     n+16(FP), CX
	VPCMPEQW Y8, Y8, Y8
	VPSRLW   $15, Y8, Y8              // ones
	VPSRLD   $16, Y8, Y9
	VPSLLD   $3, Y9, Y9               // 8
	VMOVDQU  halves<>(SB), Y11
	XORQ     DX, DX

loop:
	VMOVDQU   0(SI)(DX*4), Y0
	VMOVDQU   32(SI)(DX*4), Y1
	VMOVDQU   0(R11)(DX*4), Y2
	VMOVDQU   32(R11)(DX*4), Y3
	VPADDW    0(DI)(DX*4), Y0, Y0
	VPADDW    32(DI)(DX*4), Y1, Y1
	VPADDW    0(R12)(DX*4), Y2, Y2
	VPADDW    32(R12)(DX*4), Y3, Y3
	VPMADDWD  Y8, Y0, Y0
	VPMADDWD  Y8, Y1, Y1
	VPMADDWD  Y8, Y2, Y2
	VPMADDWD  Y8, Y3, Y3
	VPADDD    Y2, Y0, Y0
	VPADDD    Y3, Y1, Y1
	VPHADDD   Y1, Y0, Y0
	VPADDD    Y9, Y0, Y0
	VPSRLD    $4, Y0, Y0
	VPACKUSDW Y0, Y0, Y0
	VPERMD    Y0, Y11, Y0
	VMOVDQU   X0, (R8)(DX*1)
	ADDQ      $16, DX
	SUBQ      $8, CX
	JG        loop
	VZEROUPPER
	RET
