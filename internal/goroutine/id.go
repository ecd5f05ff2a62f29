//go:build gc && (amd64 || arm64 || 386 || arm || riscv64)

package goroutine

// ID returns the same number at each call in one goroutine. Two goroutines that run at the same time have
// different numbers. A later goroutine may have it again. 0 says that it is not known on this architecture.
// It costs about as much as a function call.
func ID() uintptr
