//go:build countlocks

package lock

import (
	"sync"
	"sync/atomic"
)

// Mutex is sync.Mutex, and counts.
type Mutex struct{ sync.Mutex }

// RWMutex is sync.RWMutex, and counts.
type RWMutex struct{ sync.RWMutex }

var taken atomic.Int64

// Counts says whether Taken counts.
const Counts = true

// Taken returns how many locks were taken in this process.
func Taken() int64 { return taken.Load() }

func (m *Mutex) Lock() {
	taken.Add(1)
	m.Mutex.Lock()
}

func (m *Mutex) TryLock() bool {
	taken.Add(1)
	return m.Mutex.TryLock()
}

func (m *RWMutex) Lock() {
	taken.Add(1)
	m.RWMutex.Lock()
}

func (m *RWMutex) RLock() {
	taken.Add(1)
	m.RWMutex.RLock()
}
