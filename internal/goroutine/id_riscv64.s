//go:build gc

#include "textflag.h"

// func ID() uintptr
TEXT ·ID(SB), NOSPLIT, $0-8
	MOV g, ret+0(FP)
	RET
