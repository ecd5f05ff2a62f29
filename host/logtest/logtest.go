// Package logtest checks a log of one's own against the contract of host.Log. Run it in a test of the package
// that has the log:
//
//	func TestX(t *testing.T) {
//		logtest.Run(t, func(t *testing.T) logtest.Store {
//			dir := t.TempDir()
//			return logtest.Store{Open: func() (host.Log, error) { return mylog.Open(dir) }, Reopens: true}
//		})
//	}
//
// Run it with -race too: a part of the contract is what other goroutines see.
//
// Each case has a log that is new, and compares it with a naive model: a map of slices. What a crash, a
// full disk or a hung disk must not do is checked if the Store can cause them. Otherwise these cases are
// skipped, and the log is known to be right on a good day only. A host relies on all of it.
//
// A passed kit shows that a log keeps the contract in these histories. It does not replace tests that know
// how the log works: what sectors a crash tears, what operations fail (package wal has such a laboratory).
package logtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/host"
)

// Store is where a log is kept, with what the kit may do to it: for a log in files, a directory on a disk. A
// mode that calls an append counted before it is durable breaks the cases with a crash; open the log in
// another one.
type Store struct {
	// Open opens the log; the first time it is new. The kit closes it, or crashes the store, before it calls
	// Open again.
	Open func() (host.Log, error)
	// Reopens says that the log is still there after Close.
	Reopens bool
	// Crash cuts the power: what was not made durable may be lost, all or some of it, and the log that was
	// open is dead. nil if the store cannot.
	Crash func()
	// Fill makes the disk full, so that entries find no space sooner or later, or ends that. nil if the store
	// cannot.
	Fill func(full bool)
	// Hang makes reads of the disk, or its syncs, take until Hang(false, false, nil), and calls hung, which
	// returns at once, when such an operation begins to wait. nil if the store cannot. A log that reads
	// nothing from a disk, or syncs nothing, need not have these operations.
	Hang func(reads, syncs bool, hung func())
	// FailSyncs makes syncs of the disk fail, or ends that. nil if the store cannot.
	FailSyncs func(fail bool)
}

// Run runs the kit. store is called once for each case and returns a new Store.
func Run(t *testing.T, store func(t *testing.T) Store) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := store(t)
			if lacks := c.lacks(s); lacks != "" {
				t.Skipf("%s; this case needs it", lacks)
			}
			if why := c.judge(s, maxWait); why != "" {
				t.Fatal(why)
			}
		})
	}
}

// maxWait is how long the kit waits for a call that must not block. It only ends a test that would never
// end.
const maxWait = 30 * time.Second

// kase is one part of the contract.
type kase struct {
	name                            string
	reopen, crash, fill, hang, fail bool // what the store must be able to do
	run                             func(x *exam)
}

var cases = []kase{
	{name: "reads", run: reads},
	{name: "byte limits", run: byteLimits},
	{name: "replaced and truncated entries", run: replaces},
	{name: "compaction", run: compacts},
	{name: "snapshots", run: snapshots},
	{name: "hard states", run: hardStates},
	{name: "order of a write's parts", run: ordersParts},
	{name: "many groups", run: manyGroups},
	{name: "slices are not kept", run: keepsNoSlices},
	{name: "invalid writes", run: invalidWrites},
	{name: "deleted groups", run: deletes},
	{name: "recent entries", run: recent},
	{name: "flushes", run: flushes},
	{name: "closed log", run: closes},
	{name: "random histories", run: histories},
	{name: "concurrent readers", run: concurrentReaders},
	{name: "reopened log", reopen: true, run: reopens},
	{name: "random histories, reopened", reopen: true, run: reopenedHistories},
	{name: "what a flush covers", crash: true, run: flushCovers},
	{name: "what a crash leaves of a write", crash: true, run: crashKeepsWritesWhole},
	{name: "random histories with crashes", crash: true, run: crashes},
	{name: "deleted groups after a crash", crash: true, run: deletesDurably},
	{name: "full disk", fill: true, run: fullDisk},
	{name: "failed syncs", fail: true, run: failedSyncs},
	{name: "hung reads", hang: true, run: hungReads},
	{name: "hung syncs", hang: true, run: hungSyncs},
}

// lacks returns what the store cannot do and the case needs, or "".
func (c *kase) lacks(s Store) string {
	switch {
	case c.reopen && !s.Reopens:
		return "Store.Reopens is false"
	case c.crash && s.Crash == nil:
		return "Store.Crash is nil"
	case c.fill && s.Fill == nil:
		return "Store.Fill is nil"
	case c.hang && s.Hang == nil:
		return "Store.Hang is nil"
	case c.fail && s.FailSyncs == nil:
		return "Store.FailSyncs is nil"
	}
	return ""
}

// judge runs the case and returns what is wrong with the log, or "".
func (c *kase) judge(s Store, maxWait time.Duration) (why string) {
	x := &exam{store: s, maxWait: maxWait, want: model{}}
	defer func() {
		switch p := recover().(type) {
		case nil:
		case verdict:
			why = string(p)
		default:
			panic(p)
		}
	}()
	x.open()
	c.run(x)
	if x.log != nil {
		x.close()
	}
	return ""
}

// verdict is the panic that ends a case.
type verdict string

// exam is one case under way: a log, and the model of what it must show.
type exam struct {
	store   Store
	maxWait time.Duration
	log     host.Log
	want    model
}

// fatalf ends the case. It must be called by the goroutine of the case.
func (x *exam) fatalf(format string, args ...any) { panic(verdict(fmt.Sprintf(format, args...))) }

// must ends the case if err is not nil.
func (x *exam) must(what string, err error) {
	if err != nil {
		x.fatalf("%s: %v", what, err)
	}
}

func (x *exam) open() {
	l, err := x.store.Open()
	x.must("open", err)
	if l == nil {
		x.fatalf("open returned neither a log nor an error")
	}
	x.log = l
}

func (x *exam) close() {
	x.must("close", x.log.Close())
	x.log = nil
}

// crash cuts the power and opens the log again.
func (x *exam) crash() {
	id, generation := x.log.ID(), x.log.Fence().Generation
	x.store.Crash()
	x.open()
	x.checkIdentity(id, generation)
}

// checkIdentity checks a log that was opened again.
func (x *exam) checkIdentity(id [16]byte, generation uint64) {
	f := x.log.Fence()
	switch {
	case x.log.ID() != id:
		x.fatalf("the log's id was %x, and is %x after it was opened again", id, x.log.ID())
	case f.Generation <= generation:
		x.fatalf("the log's generation was %d, and is %d after it was opened again", generation, f.Generation)
	case f.Amnesia:
		x.fatalf("the log has amnesia after it was opened again; open it in a mode in which only what is durable counts")
	}
}

// returns ends the case if f has not returned after a long time. f does not end the case itself.
func (x *exam) returns(what string, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	timer := time.NewTimer(x.maxWait)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		x.fatalf("%s: it does not return", what)
	}
}
