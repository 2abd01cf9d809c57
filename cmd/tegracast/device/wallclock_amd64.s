// SPDX-License-Identifier: Apache-2.0

//go:build modelcontrol

#include "textflag.h"

// steppedClock is what Go's runtime calls instead of the vDSO's clock_gettime, by C's convention on its system stack: DI is the clock, SI where
// the time is put. The seconds of CLOCK_REALTIME (0) are ahead by wallAhead.
TEXT ·steppedClock(SB), NOSPLIT|NOFRAME, $0-0
	SUBQ $24, SP // SP is a multiple of 16 at the call
	MOVQ DI, 0(SP)
	MOVQ SI, 8(SP)
	MOVQ ·systemClock(SB), AX
	CALL AX
	MOVQ 0(SP), DI
	MOVQ 8(SP), SI
	ADDQ $24, SP
	CMPL DI, $0
	JNE  done
	MOVQ ·wallAhead(SB), CX
	ADDQ CX, 0(SI)
done:
	RET

// func takeClock()
TEXT ·takeClock(SB), NOSPLIT, $0-0
	MOVQ runtime·vdsoClockgettimeSym(SB), AX
	CMPQ AX, $0
	JEQ  none
	MOVQ AX, ·systemClock(SB)
	LEAQ ·steppedClock(SB), AX
	MOVQ AX, runtime·vdsoClockgettimeSym(SB)
none:
	RET
