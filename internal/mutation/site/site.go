//go:build unix

// Package site is the switch of a schema: a program with many mutants asks it which mutant is alive. It is
// imported by generated code only, which exists in an overlay of a test build (package mutation), so no
// program that users build contains it.
//
// Two variables of the environment are read once, when the program starts. A child process inherits them, so
// a mutant is alive in the processes that a test starts too.
package site

import (
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"unsafe"
)

const (
	// Alive names the variable with the number of the mutant that is alive. Without it none is.
	Alive = "MILLRACE_MUTANT"
	// Reached names the variable with the path of a file that notes each evaluated site: four bytes for
	// each mutant, zero or one. The file must exist with its full length. It is mapped into memory, so what
	// was reached is known even of a program that was killed.
	Reached = "MILLRACE_MUTANTS_REACHED"
)

var (
	alive   = readAlive()
	reached = mapReached()
)

// On reports whether mutant n is alive, and notes that its site was reached if this run takes notes. It is
// small enough to be inlined.
func On(n int) bool { return n == alive || reached != nil && note(n) }

func note(n int) bool {
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&reached[4*n])), 1)
	return false
}

func readAlive() int {
	text, ok := os.LookupEnv(Alive)
	if !ok {
		return -1
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		stop("%s is %q, want the number of a mutant", Alive, text)
	}
	return n
}

func mapReached() []byte {
	path, ok := os.LookupEnv(Reached)
	if !ok {
		return nil
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		stop("%s: %v", Reached, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		stop("%s: %v", Reached, err)
	}
	b, err := syscall.Mmap(int(f.Fd()), 0, int(info.Size()), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		stop("%s: map %d bytes of %s: %v", Reached, info.Size(), path, err)
	}
	return b
}

// stop ends the program: a run with a wrong switch would judge the unchanged code.
func stop(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "mutation: "+format+"\n", args...)
	os.Exit(3)
}
