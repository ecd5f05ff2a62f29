//go:build !countlocks

// Package lock has the locks of the runtime and of its log. They are those of package sync. With
// the build tag countlocks they count how often they are taken, for the simulator (sim.MeasureCost):
//
//	go test -tags countlocks ./sim -run TestASteadyRoundCallsNoDuty -v
package lock

import "sync"

type (
	// Mutex is the lock of one owner.
	Mutex = sync.Mutex
	// RWMutex may have several readers.
	RWMutex = sync.RWMutex
)

// Counts says whether Taken counts.
const Counts = false

// Taken returns how many locks were taken in this process.
func Taken() int64 { return 0 }
