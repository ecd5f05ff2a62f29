//go:build gc && (amd64 || arm64 || 386 || arm || riscv64)

package goroutine

// ID returns a number that is the same at each call in one goroutine, and differs between goroutines that run
// at the same time. A later goroutine may have it again. 0 says that it is not known on this architecture.
// It costs about as much as a function call.
func ID() uintptr
