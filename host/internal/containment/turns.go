package containment

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/millrace/millrace/raft"
)

// A panic in a turn is a bug of ours: a broken invariant of the core, or an error of the language (nil, an
// index out of range). It stops the group if all that it can have left half-done belongs to the group, and
// the process if not. Decision 0031 has the reasons, and what a panic does elsewhere.
//
// The stack says what was under way. Other groups are touched only under a lock, and a lock is released in
// the function that took it. So if no function between the turn and the panic takes a lock, and all of them
// are the core's, package host's and its parts', no lock is held and nothing that groups share is
// half-changed. Otherwise the panic goes on: a host that has stopped is started again by its supervisor,
// and one that hangs is not.

// lockers are the types whose methods take locks: those of package host, and of its parts with their package.
var lockers = words(`
	Taking
	flightRecorder groupTable inbox
	shutdown
	signal
	appendlane.Lane
	apply.Lane apply.Lanes apply.LogTime apply.Queue apply.Skips
	bulk.Receiver bulk.Sender bulk.Transfers
	divergence.Comparison
	examination.FollowerWatch examination.Watch
	feed.Feed feed.Reader feed.Waker
	identity.Admission
	leadership.Transfer
	members.Authority members.Keys members.Removal members.Rosters
	objects.Keeper objects.Upload
	peers.Book
	placement.Moves placement.Placer
	plans.Applicants plans.Catalog plans.Execution plans.Executions plans.Requests
	proposals.DrainRate proposals.Queue proposals.SpaceWaiters
	pulse.PeerPulses pulse.Receiver pulse.Sender
	reads.Queue reads.Read
	reports.Events reports.backlog
	sched.Seat sched.Shard sched.Worker
	snapshots.Group snapshots.Growth snapshots.Lane snapshots.Lanes snapshots.take
	storage.Reader storage.Readers storage.Shortages
	versions.Group
	workqueue.Queue`)

// lockingFunctions are the other functions that take locks, with the type of their receiver.
var lockingFunctions = words(`
	members.Group.SetExcluded
	identity.Enter`)

func words(text string) map[string]bool {
	set := map[string]bool{}
	for word := range strings.FieldsSeq(text) {
		set[word] = true
	}
	return set
}

const (
	module      = "github.com/millrace/millrace/"
	hostPackage = module + "host"
	partsPath   = hostPackage + "/internal/"
)

// Turn returns the error with which a group stops because its turn has panicked with a value. It is
// called while the panic is under way, by a deferred function of the turn. It panics again if the panic may
// have left more than the group half-done.
func Turn(group uint64, value any) error {
	if broken, ours := value.(*raft.BrokenInvariant); ours {
		return broken
	}
	if where := uncontained(panicking()); where != "" {
		panic(fmt.Sprintf("millrace: the turn of group %d panicked, and %s may have left what groups share half-done: %v", group, where, value))
	}
	return &Panic{fmt.Sprintf("millrace: the turn of group %d panicked: %v; this is a bug: report it, with the stack in the log and the flight recorder's file; the other groups of this host go on, and this one can be closed and opened again", group, value), debug.Stack()}
}

// panicking returns the functions between the one that panicked and the turn.
func panicking() (functions []string) {
	pcs := make([]uintptr, 256)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	raised := false
	for {
		f, more := frames.Next()
		switch {
		case f.Function == hostPackage+".(*Group).runTurn":
			return functions
		case raised:
			functions = append(functions, f.Function)
		}
		raised = raised || f.Function == "runtime.gopanic"
		if !more {
			return append(functions, "a function beyond the turn")
		}
	}
}

// uncontained returns the first of some functions that may hold a lock, or is not the core's and not of
// package host; "" if there is none.
func uncontained(functions []string) string {
	for _, f := range functions {
		if !isContained(f) {
			return f
		}
	}
	return ""
}

func isContained(function string) bool {
	path, name := "", function
	if slash := strings.LastIndexByte(function, '/'); slash >= 0 {
		path, name = function[:slash+1], function[slash+1:]
	}
	pkg, name, _ := strings.Cut(name, ".")
	switch path += pkg; {
	case path == hostPackage:
		return !mayLock("", name)
	case strings.HasPrefix(path, partsPath):
		return !mayLock(pkg+".", name)
	case path == hostPackage+"/flight":
		receiver, _ := receiverOf(name)
		return receiver == "Node" // which passes the core's calls on
	case path == hostPackage+"/membership" || path == hostPackage+"/pipeline":
		return true
	case path == module+"raft" || strings.HasPrefix(path, module+"raft/"):
		return true
	}
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".") && first != "main" && first != "command-line-arguments" // the standard library, or the runtime
}

// mayLock reports whether a function of package host, or of a part, is listed as one that takes locks.
func mayLock(part, name string) bool {
	receiver, method := receiverOf(name)
	return lockers[part+receiver] || lockingFunctions[part+strings.TrimPrefix(receiver+"."+method, ".")]
}

// receiverOf splits the name of a function, as the runtime writes it: (*Group).runTurn.func1, storage.Term,
// words, (*ring[...]).pop.
func receiverOf(name string) (receiver, method string) {
	if rest, pointer := strings.CutPrefix(name, "(*"); pointer {
		receiver, method, _ = strings.Cut(rest, ").")
		receiver, _, _ = strings.Cut(receiver, "[")
		method, _, _ = strings.Cut(method, ".")
		return receiver, method
	}
	first, rest, _ := strings.Cut(name, ".")
	method, _, _ = strings.Cut(rest, ".")
	if method == "" || strings.HasPrefix(method, "func") || strings.HasPrefix(method, "gowrap") {
		return "", first
	}
	return first, method
}
