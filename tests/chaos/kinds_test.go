//go:build linux

package chaos

import "time"

// kind is a kind of fault: what it does, and what the hosts owe to their clients meanwhile and afterwards,
// beside what holds for all kinds: nothing is lost, and no read is stale.
type kind struct {
	name              string
	expects           string // beside that
	shortest, longest time.Duration
	atMost            int  // in one episode; 0: no bound
	disk              bool // it needs a host on a small disk
	can               func(*world) bool
	make              func(*episode, fault) error
}

func always(*world) bool           { return true }
func inNamespaces(w *world) bool   { return w.namespaces }
func withTracer(w *world) bool     { return w.strace != "" }
func withSmallDisks(w *world) bool { return w.mkfs != "" }

const (
	ms     = time.Millisecond
	second = time.Second
)

// kinds are all kinds, in the order of the tables that are printed.
var kinds = []*kind{
	{name: "kill", expects: "it starts again and catches up", shortest: 50 * ms, longest: 2 * second, can: always, make: makeKill},
	{name: "kill-all", expects: "the cluster elects and serves after the start", shortest: 50 * ms, longest: second, atMost: 2, can: always, make: makeKillAll},
	{name: "stop", expects: "it ends by itself with status 0", shortest: 50 * ms, longest: second, can: always, make: makeStop},
	{name: "pause", expects: "no stale read, and no second leader, after it wakes", shortest: 30 * ms, longest: 3 * second, can: always, make: makePause},
	{name: "chdir", expects: "it goes on where it was started, and writes nothing into the new directory", shortest: 0, longest: second, can: always, make: makeChdir},
	{name: "one-way-cut", expects: "it heals", shortest: 200 * ms, longest: 3 * second, can: always, make: makeOneWay},
	{name: "isolated", expects: "it heals", shortest: 200 * ms, longest: 3 * second, can: always, make: makeIsolated},
	{name: "deaf", expects: "a leader that hears nothing is replaced", shortest: 200 * ms, longest: 3 * second, can: always, make: makeDeaf},
	{name: "bridge", expects: "it heals", shortest: 200 * ms, longest: 3 * second, can: always, make: makeBridge},
	{name: "chain", expects: "it heals", shortest: 200 * ms, longest: 3 * second, can: always, make: makeChain},
	{name: "any-cuts", expects: "it heals", shortest: 200 * ms, longest: 3 * second, can: always, make: makeAnyCuts},
	{name: "slow-link", expects: "it heals", shortest: 500 * ms, longest: 4 * second, can: always, make: makeSlow},
	{name: "sync-fails", expects: "the process ends with status 1 and says why", shortest: second, longest: 3 * second, can: withTracer, make: makeSyncFails},
	{name: "write-fails", expects: "the process ends with status 1 and says why", shortest: second, longest: 3 * second, can: withTracer, make: makeWriteFails},
	{name: "no-space", expects: "the process lives, and continues when there is space", shortest: second, longest: 3 * second, can: withTracer, make: makeNoSpace},
	{name: "killed-in-call", expects: "it starts again and catches up", shortest: second, longest: 3 * second, can: withTracer, make: makeKilledInCall},
	{name: "slow-disk", expects: "it heals", shortest: 3 * second, longest: 6 * second, can: withTracer, make: makeSlowDisk},
	{name: "full-disk", expects: "the process lives, and continues when there is space", shortest: 20 * second, longest: 30 * second, atMost: 1, disk: true, can: withSmallDisks, make: makeFullDisk},
	{name: "wiped", expects: "it is refused with a sentence and ends; a new directory joins in its place", shortest: 0, longest: 500 * ms, atMost: 2, can: always, make: makeWiped},
	{name: "exchanged-directory", expects: "it is refused at the start with a sentence", shortest: 0, longest: 500 * ms, atMost: 2, can: always, make: makeExchanged},
	{name: "second-copy", expects: "the copy is refused with a sentence; the first one serves", shortest: 0, longest: 500 * ms, atMost: 1, can: inNamespaces, make: makeCopied},
	{name: "restored", expects: "it is refused with a sentence; a new directory joins in its place", shortest: 100 * ms, longest: second, atMost: 1, can: always, make: makeRestored},
	{name: "demoted", expects: "it is a voter again", shortest: 0, longest: second, atMost: 3, can: always, make: makeDemoted},
	{name: "replaced-host", expects: "a new host votes, and the old one ends by itself", shortest: 0, longest: second, atMost: 2, can: inNamespaces, make: makeReplacedHost},
	{name: "new-certificates", expects: "no host is cut off", shortest: 0, longest: second, atMost: 1, can: always, make: makeNewCertificates},
}

// serviceKinds are the kinds that the service meets: general ones, and its own.
var serviceKinds = append(general(), []*kind{
	{name: "slow-disk", expects: "it heals, also when it leads", shortest: 3 * second, longest: 6 * second, can: withTracer, make: makeServiceSlowDisk},
	{name: "full-disk", expects: "it says so, and catches up when it is started again with space", shortest: 0, longest: second, atMost: 1, disk: true, can: withSmallDisks, make: makeServiceFullDisk},
}...)

// general returns the kinds of kinds that work with every program.
func general() (some []*kind) {
	for _, k := range kinds {
		switch k.name {
		case "kill", "kill-all", "stop", "pause", "one-way-cut", "isolated", "deaf", "bridge", "chain", "any-cuts", "slow-link", "killed-in-call":
			some = append(some, k)
		}
	}
	return some
}
