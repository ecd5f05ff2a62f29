//go:build gc

#include "textflag.h"

// func ID() uintptr
TEXT ·ID(SB), NOSPLIT, $0-4
	MOVW g, ret+0(FP)
	RET
