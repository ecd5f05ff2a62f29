package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/statemachine"
)

// What host.Group.Explain says is worth something only if it names the cause, names no wrong one, and says
// nothing about a healthy cluster. So each Ailment here is a cluster in which one thing is wrong, and says
// which verdicts must come, on which host, and which others would not be wrong. The verdicts of all hosts are
// looked at in short steps: before the ailment and after its end there must be none.

// Ailment is what is wrong with the cluster of Explain.
type Ailment int

// The kinds. The first four are healthy.
const (
	NothingWrong       Ailment = iota // under load
	NothingWrongIdle                  // no commands; several groups, asleep
	NothingButHandOver                // the leader hands over, again and again
	NothingButElection                // the leader's group is closed and opened again
	QuorumGone                        // two hosts of three crash, or all are cut off
	OneNeverCame                      // one host of a new cluster does not start
	FollowerHangs                     // the disk of a follower hangs
	LeaderHangs                       // the disk of the leader
	LeaderSlow                        // the disk of the leader takes longer than an election timeout, and works
	FollowerFull                      // the disk of a follower is full
	LeaderFull                        // the disk of the leader
	ProcessPaused                     // one process is paused
	DirectoryWiped                    // a follower comes back with an empty directory
	FollowerSlow                      // the disk of a follower is slow, and completes everything
	FollowerDown                      // a follower crashes
	FollowerClosed                    // the group is closed on a follower
	FollowerFailed                    // the disk of a follower returns an error
	MachineStuck                      // a state machine hangs in Apply, or every lane does
	TooManyCommands                   // more commands than the memory is for
	Ailments
)

var ailmentNames = [Ailments]string{
	"nothing, under load", "nothing, idle", "nothing, hand-overs", "nothing, an election", "no quorum", "one host never came",
	"the disk of a follower hangs", "the disk of the leader hangs", "the disk of the leader is slow", "the disk of a follower is full", "the disk of the leader is full",
	"a process is paused", "a directory is wiped", "the disk of a follower is slow", "a follower is down", "the group is closed on a follower",
	"the disk of a follower fails", "a state machine is stuck", "too many commands",
}

func (a Ailment) String() string { return ailmentNames[a] }

// ExplainReport says what a run of Explain saw.
type ExplainReport struct {
	Took     time.Duration // from the beginning of the ailment until all verdicts that must come had come
	Healed   time.Duration // from its end until no host named a cause
	Verdicts int           // different pairs of host and cause
	Page     string        // of a host, when the last verdict had come
}

// Explain runs one scenario with many seeds: three hosts, and one ailment. The error, if any, is a
// *Violation: a verdict that is wrong, does not come, or does not end.
func Explain(o Options, kind Ailment) (report ExplainReport, err error) {
	if kind == NothingWrongIdle {
		o.groups = 4
	}
	err = scenario(o, func(w *world, rng *rand.Rand) {
		d := &doctor{w: w, rng: rng, kind: kind, seen: map[verdict]bool{}, report: &report}
		d.run()
	})
	return report, err
}

// doctor is a run of Explain.
type doctor struct {
	w      *world
	rng    *rand.Rand
	kind   Ailment
	report *ExplainReport

	wants        []verdict            // must come
	allows       func(v verdict) bool // would not be wrong
	heal         func()               // ends the ailment
	during       func()               // in each step
	seen         map[verdict]bool
	ledAt        time.Duration // a host led then
	healthySince time.Duration // no host has named a cause since then
}

// verdict is a cause that a host names.
type verdict struct {
	by     uint64
	code   diagnosis.Code
	member uint64
}

func (v verdict) String() string {
	return fmt.Sprintf("host %d: %s, member %d", v.by, v.code, v.member)
}

const lookStep = 7 * time.Millisecond

func (d *doctor) run() {
	w := d.w
	w.config.MemoryBytes = 256 << 20
	w.net.slowest = pick(d.rng, 300*time.Microsecond, 3*time.Millisecond)
	w.groupConfig.NonBlocking = false // a machine that hangs would be a broken promise
	w.nemesis.replaces = func(*life) {}
	w.hangs = &hangs{w: w, hangsAt: func(*life, statemachine.Entry) time.Duration { return 0 }}
	if d.kind == TooManyCommands {
		w.config.MemoryBytes = 128 << 10
	}
	w.groupConfig.MaxAppendBytes = 0 // a member that comes back must catch up
	timeout := w.config.ElectionTimeout
	d.allows = func(verdict) bool { return false }
	if d.kind != OneNeverCame {
		w.startCalmly()
		if d.kind == NothingWrongIdle {
			w.clients.pace = time.Hour
		}
		if d.kind != TooManyCommands { // even a few are too many at times
			d.watch(5*timeout, nil)
		}
	}
	d.begin()
	began := w.now
	if !d.watch(40*timeout, d.allSeen) {
		w.violate("%v after its beginning (%v), these verdicts have not all come: %v; seen: %v; %s", w.now-began, d.kind, d.wants, d.seen, d.pages())
	}
	d.report.Took = w.now - began
	d.report.Page = d.page()
	d.watch(between(d.rng, 0, 10*timeout), nil) // none of them turns into a wrong one
	if d.heal != nil {
		d.heal()
	}
	ended := w.now
	d.healthySince = ended
	w.net.cut = map[link]bool{}
	if !d.watch(80*timeout, d.allHealthy) {
		w.violate("%v after its end (%v), hosts still name causes: %s", w.now-ended, d.kind, d.pages())
	}
	d.report.Healed, d.report.Verdicts = d.healthySince-ended, len(d.seen)
	d.allows, d.during = func(verdict) bool { return false }, nil
	d.watch(10*timeout, nil)
	w.hangs.release()
	if w.clients.pace > time.Second {
		w.clients.pace = 2 * time.Millisecond
		w.clients.schedule()
	}
	w.endWell()
}

// watch looks at all verdicts in short steps, until done or for a time.
func (d *doctor) watch(most time.Duration, done func() bool) bool {
	for end := d.w.now + most; d.w.now < end; {
		if d.during != nil {
			d.during()
		}
		d.w.pass(lookStep)
		d.examine()
		if done != nil && done() {
			return true
		}
	}
	return false
}

// examine records what each host says, and refuses what would be wrong.
func (d *doctor) examine() {
	if d.w.leader() != nil {
		d.ledAt = d.w.now
	}
	d.each(func(r *replica, diagnosis diagnosis.Diagnosis) {
		for _, c := range slices.Concat(diagnosis.Causes, diagnosis.Warnings) {
			v := verdict{r.life.host.id, c.Code, c.Member}
			if !d.allows(v) && !d.isWanted(v) {
				d.w.violate("%v, and %s names a cause that is not there: %v; %s\n%s", d.kind, r.name, v, diagnosis, d.w.positions())
			}
			d.seen[v] = true
		}
	})
}

// each asks all groups that can be asked.
func (d *doctor) each(f func(*replica, diagnosis.Diagnosis)) {
	d.w.eachReplica(func(r *replica) {
		if r.group != nil && !r.closing && r.life.host.pausedUntil <= d.w.now {
			f(r, r.group.Explain())
		}
	})
}

func (d *doctor) isWanted(v verdict) bool {
	for _, want := range d.wants {
		if v == want {
			return true
		}
	}
	return false
}

func (d *doctor) allSeen() bool {
	for _, want := range d.wants {
		if !d.seen[want] {
			return false
		}
	}
	return true
}

// allHealthy reports whether no host has named a cause for five election timeouts.
func (d *doctor) allHealthy() bool {
	healthy := 0
	d.each(func(_ *replica, diagnosis diagnosis.Diagnosis) {
		if diagnosis.Healthy && len(diagnosis.Warnings) == 0 {
			healthy++
		}
	})
	if healthy < len(d.w.hosts)*len(d.w.ghosts) {
		d.healthySince = d.w.now
	}
	return d.w.now-d.healthySince > 5*d.w.config.ElectionTimeout
}

func (d *doctor) pages() (text string) {
	d.each(func(_ *replica, diagnosis diagnosis.Diagnosis) { text += "\n" + diagnosis.String() })
	return text
}

// page is that of the host that names most.
func (d *doctor) page() (text string) {
	most := -1
	d.each(func(_ *replica, diagnosis diagnosis.Diagnosis) {
		if n := len(diagnosis.Causes) + len(diagnosis.Warnings); n > most {
			most, text = n, diagnosis.String()
		}
	})
	return text
}

// want adds a verdict that must come.
func (d *doctor) want(by *machine, code diagnosis.Code, member uint64) {
	d.wants = append(d.wants, verdict{by.id, code, member})
}

// about allows other hosts to say of one that it is not well, in any of the words that a leader has.
func (d *doctor) about(h *machine, codes ...diagnosis.Code) {
	was := d.allows
	d.allows = func(v verdict) bool {
		if was(v) {
			return true
		}
		for _, c := range codes {
			if v.code == c && (v.member == h.id && v.by != h.id || v.member == 0 && v.by == h.id) {
				return true
			}
		}
		return false
	}
}
