// SPDX-License-Identifier: Apache-2.0
// What the kernels of columns_avx512_amd64.s and columns_vbmi_amd64.s share: four times the linear samples of 64 pixels, in
// p of pixels with the own colour and in g of green ones. TWO and FOURS hold words of 2 and 0xfffc.
#define TWO Z25
#define FOURS Z15

// POINTERS takes those of colorsLines at AX.
#define POINTERS \
	MOVQ 0(AX), R8 \
	MOVQ 8(AX), R9 \
	MOVQ 16(AX), R10 \
	MOVQ 24(AX), R11 \
	MOVQ 32(AX), R12 \
	MOVQ 40(AX), R13

// NEIGHBOURS makes, of odd in SI, how far from the pointers the first neighbours stand.
#define NEIGHBOURS \
	SHLQ $1, SI \
	MOVQ SI, AX \
	NEGQ AX                        /* own colour left of a green pixel */ \
	SUBQ $2, SI                    /* green left of a pixel of the own colour */ \
	XORQ DX, DX

#define OWN(p, g) \
	VMOVDQU64 (R8)(DX*1), p \
	VMOVDQU64 (R8)(AX*1), g \
	VPAVGW    2(R8)(AX*1), g, g \
	VPSLLW    $2, p, p \
	VPSLLW    $2, g, g

// GREEN changes t.
#define GREEN(p, g, t) \
	VMOVDQU64 (R9)(SI*1), p \
	VMOVDQU64 (R10)(DX*1), t \
	VPADDW    2(R9)(SI*1), p, p \
	VPADDW    (R12)(DX*1), t, t \
	VMOVDQU64 (R9)(DX*1), g \
	VPADDW    TWO, p, p \
	VPADDW    t, p, p \
	VPSLLW    $2, g, g \
	VPANDD    FOURS, p, p

// THIRD changes t.
#define THIRD(p, g, t) \
	VMOVDQU64 (R11)(SI*1), p \
	VMOVDQU64 (R13)(SI*1), t \
	VPADDW    2(R11)(SI*1), p, p \
	VPADDW    2(R13)(SI*1), t, t \
	VMOVDQU64 (R11)(DX*1), g \
	VPADDW    TWO, p, p \
	VPAVGW    (R13)(DX*1), g, g \
	VPADDW    t, p, p \
	VPSLLW    $2, g, g \
	VPANDD    FOURS, p, p

// NEXT goes on by 64 pixels; with JG behind it there are some left.
#define NEXT \
	ADDQ $64, DX \
	ADDQ $64, SI \
	ADDQ $64, AX \
	ADDQ $192, DI \
	SUBQ $64, CX
