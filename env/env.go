// Package env is the seam between Millrace and the machine: time, chance, and who runs next.
//
// The runtime never starts a goroutine, reads a clock or draws a random number by itself; it asks an Env. Real
// returns the one of production. The simulator (package sim) hands in another, whose clock is virtual and whose
// scheduler runs one worker at a time in an order drawn from a seed, so one seed is one history.
package env

import (
	"io"
	"time"
)

// Env is the world a host lives in. All fields but Secrets must be set.
type Env struct {
	Clock     Clock
	Rand      Rand
	Scheduler Scheduler
	// Secrets gives random bytes that nobody can guess: the salts of the log (wal.Options.Rand). The workers of a host read
	// it, one at a time. nil means crypto/rand.Reader; a simulation sets it, or its disks differ from run to run.
	Secrets io.Reader
}

// Clock tells monotonic time and runs callbacks later.
type Clock interface {
	// Now returns the time since an arbitrary fixed origin. It never goes back.
	Now() time.Duration
	// Every calls f each period until stop is called. f must return at once. A late callback is not made up for:
	// missed periods collapse into one. stop waits for a running f and may be called once.
	Every(period time.Duration, f func()) (stop func())
	// Timer returns a timer that is not set. f must return at once.
	Timer(f func()) Timer
}

// Timer calls its function once for each time it was set and not stopped. Its methods may be called from anywhere.
type Timer interface {
	// Set makes the call due after d, instead of when it was due before.
	Set(d time.Duration)
	// Stop makes no call due. One that has begun may still run.
	Stop()
}

// Rand is a source of random numbers. It is safe for concurrent use.
type Rand interface {
	Uint64() uint64
}

// Worker is an object with work to do in bounded pieces.
type Worker interface {
	// RunOnce does one bounded piece of work and reports whether it knows of more. The scheduler never runs two
	// RunOnce calls of one worker at the same time, and orders them: what one call wrote the next one sees.
	RunOnce() (more bool)
}

// Kind says what the RunOnce calls of a worker usually wait for, apart from the processor. Kinds are combined
// with |. A scheduler may use it to decide how many workers run at once, and a simulation to delay them.
type Kind uint8

const (
	Compute      Kind = 0         // nothing else
	Disk         Kind = 1 << iota // reads, writes and syncs of files
	StateMachine                  // calls of the user's state machine
)

// Gatherer is a Worker whose work is the cheaper the more of it has come together.
type Gatherer interface {
	Worker
	// Gathers reports whether more is likely to come at once. Then the scheduler may let the goroutines that are ready
	// run first. It is asked before RunOnce, by the same goroutine.
	Gathers() bool
	// Gathered tells how long they took, before the RunOnce. It is called after each Gathers that the scheduler has
	// followed, so that a worker in a busy process can stop asking.
	Gathered(took time.Duration)
}

// Task is a scheduled worker.
type Task interface {
	// Wake asks for a RunOnce that starts after this call. It never blocks and may be called from anywhere,
	// RunOnce included. Wakes that find one already asked for collapse into it.
	Wake()
	// Stop ends the worker: when it returns, no RunOnce is running nor will run. It must not be called from the
	// worker's own RunOnce. It may be called twice.
	Stop()
}

// Scheduler runs workers.
type Scheduler interface {
	// Go registers a worker of the given kind. It runs only when it is woken. The name is for traces only.
	Go(name string, kind Kind, w Worker) Task
}
