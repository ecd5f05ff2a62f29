// Package env is the seam between Millrace and the machine: time, chance, and which worker runs next.
//
// The runtime never starts a goroutine, reads a clock or draws a random number by itself: it asks an Env.
// Real returns the Env of production. The simulator (package sim) passes an environment whose clock is
// virtual. Its scheduler runs one worker at a time in an order drawn from a seed, so a seed gives a
// history.
package env

import (
	"io"
	"time"
)

// Env is the environment of a host. Clock, Rand and Scheduler must be set.
type Env struct {
	Clock     Clock
	Rand      Rand
	Scheduler Scheduler
	// Secrets is a source of unpredictable bytes, for the salts of the log (wal.Options.Rand) and the ids of
	// sessions. The workers of a host may read it at the same time. nil means crypto/rand.Reader. A simulation
	// must set it, or its disks differ from run to run.
	Secrets io.Reader
	// Parallelism is how many workers can run at once, at least 1; 0 means 1. A host starts as many shards and
	// lanes as it can use.
	Parallelism int
	// Duties is for tests and simulations: it watches which of its duties the turn of a group calls.
	Duties Duties
	// Blocks is for tests and simulations: the memory in which payloads lie.
	Blocks Blocks
}

// Blocks is the memory for small payloads. It is reused.
type Blocks struct {
	// Bytes is the size of a block; 0 means the host's own. Small blocks have many borders.
	Bytes int
	// Poison overwrites a block when nothing holds it any more. So what looks at it too late finds no payload.
	Poison bool
}

// Duties watches the duties of groups: what a turn does besides replicating commands, when it is wanted.
type Duties struct {
	// Every makes each turn call all duties. What a duty does that nothing wants must be nothing, so the group
	// behaves in the same way.
	Every bool
	// Called, if set, is called with the name of each duty before a turn calls it. It must return at once.
	Called func(name string)
}

// Clock tells monotonic time and runs callbacks later.
type Clock interface {
	// Now returns the time since an arbitrary fixed origin. It never goes back.
	Now() time.Duration
	// Boottime returns the time since another fixed origin, by a clock that also runs while the machine is
	// suspended, where the system has one: CLOCK_BOOTTIME on Linux. Elsewhere it is Now. It never goes back.
	// No clock counts the time in which a hypervisor has stopped the whole machine unless the hypervisor tells
	// it afterwards.
	Boottime() time.Duration
	// Every calls f at the end of each period from now on, until the ticker is stopped. f must return at once.
	// It returns how many periods pass before the next call, at least 1. Late calls are not repeated: missed
	// periods collapse into one call.
	Every(period time.Duration, f func() (periods int)) Ticker
	// Timer returns a timer that is not set. f must return at once.
	Timer(f func()) Timer
}

// Ticker calls its function again and again. Hasten may be called from anywhere, Stop once.
type Ticker interface {
	// Hasten makes the next call come at the end of the present period. It never blocks.
	Hasten()
	// Stop ends the calls. It waits for one that runs.
	Stop()
}

// Timer calls its function once for each time it was set and not stopped. Its methods may be called from
// anywhere.
type Timer interface {
	// Set schedules the call after d, and replaces an earlier setting.
	Set(d time.Duration)
	// Stop cancels the call. A call that has begun may still run.
	Stop()
}

// Rand is a source of random numbers. It is safe for concurrent use.
type Rand interface {
	Uint64() uint64
}

// Worker is an object with work to do in bounded pieces.
type Worker interface {
	// RunOnce does one bounded piece of work and reports whether it knows of more. The scheduler never runs
	// two RunOnce calls of one worker at the same time, and orders them: each call sees what the call before
	// it wrote.
	RunOnce() (more bool)
}

// Kind says what the RunOnce calls of a worker usually wait for, apart from the processor. Kinds are combined
// with |. A scheduler may use it to decide how many workers run at once, and a simulation to delay them.
type Kind uint8

const (
	Compute      Kind = 0               // nothing else
	Disk         Kind = 1 << (iota - 1) // writes and syncs of files, and reads
	StateMachine                        // calls of the user's state machine
	DiskReads                           // reads of files only
)

// Gatherer is a Worker whose work is cheaper when more of it is done at once.
type Gatherer interface {
	Worker
	// Gathers reports whether more work is likely to arrive soon. If so, the scheduler may first run the
	// goroutines that are ready. It is called before each RunOnce, on the same goroutine.
	Gathers() bool
	// Gathered reports how long those goroutines ran. It is called before RunOnce, each time the scheduler
	// has followed a Gathers, so that a worker in a busy process can stop asking.
	Gathered(took time.Duration)
}

// Task is a scheduled worker.
type Task interface {
	// Wake requests a RunOnce that starts after this call. It never blocks and may be called from anywhere,
	// RunOnce included. A Wake during an unfulfilled request does nothing more.
	Wake()
	// Stop ends the worker: when it returns, no RunOnce is running and none will run. It must not be called
	// from the worker's own RunOnce. It may be called twice.
	Stop()
}

// Scheduler runs workers.
type Scheduler interface {
	// Go registers a worker of the given kind. It runs only when it is woken. The name is for traces only.
	Go(name string, kind Kind, w Worker) Task
}
