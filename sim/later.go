package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/sim/property"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// What a later version of Millrace writes, and this one must refuse. In runs with upgrades
//
//	checkLog         No log takes the appends of a leader with an entry that this program does not know.
//	checkGoingBack   The log of a host has such an entry when the present program starts on it. The group is
//	                 not opened, a sentence names the entry, and the log has it afterwards.
//	checkPromotions  A leader that knows that the program of a learner cannot do the version of the group
//	                 does not promote it.

// laterPart is the part of the seed.
const laterPart = 125

// laterEntry draws an entry of a type, or of a kind of the host's entries, that only a later program knows.
func laterEntry(rng *rand.Rand) raftpb.Entry {
	if rng.IntN(2) == 0 {
		return raftpb.Entry{Type: raftpb.EntryBatch + 1 + raftpb.EntryType(rng.IntN(3)), Data: []byte("of a later type")}
	}
	return raftpb.Entry{Type: raftpb.EntryHost, Data: append([]byte{40 + byte(rng.IntN(20))}, "of a later kind"...)}
}

// addLater adds to what a leader sends at times a message again, with an entry of a later program behind its
// own.
func (u *upgrades) addLater(batch []transport.Envelope) []transport.Envelope {
	if u == nil || u.w.nemesis.stopped || u.later.IntN(16) > 0 {
		return batch
	}
	at := slices.IndexFunc(batch, func(e transport.Envelope) bool { return e.Message.Type == raftpb.MsgApp })
	if at < 0 {
		return batch
	}
	u.w.count(LaterEntries)
	again := batch[at]
	m := &again.Message
	e := laterEntry(u.later)
	e.Term, e.Index = m.Term, m.Index+uint64(len(m.Entries))+1
	m.Entries = append(slices.Clone(m.Entries), e)
	return append(slices.Clone(batch), again)
}

// checkGoingBack starts the present program on a copy of the disk of a host that is down, as if a later
// program had run on it. The log of one group ends with an entry of that. The host speaks with no other one.
func (u *upgrades) checkGoingBack(h *machine) {
	if h.alive != nil || u.w.user != nil || u.later.IntN(3) > 0 {
		return
	}
	disk := h.disk.Image(crashfs.LoseNothing, u.later.Uint64)
	disk.SetCapacity(0)
	l := &life{w: u.w, host: newMachine(u.w, h.id), impostor: true, name: fmt.Sprintf("a copy of host %d", h.id), rng: u.later}
	group := pick(u.later, u.w.ghosts...).id
	e, err := u.writeLater(disk.Mount(), h, group)
	if err != nil || e.Index == 0 {
		return
	}
	u.w.count(GoneBack)
	c := u.w.config
	c.ID, c.Dir = h.id, directory
	ctx := context.Background()
	process, err := host.Open(ctx, c, host.WithEnv(l.env()), host.WithFS(disk.MountIn(&l.paths)), host.WithTransport(silence{}), host.WithPipeline(u.w.pipeline),
		host.WithBatches(u.w.batches), host.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		u.w.breaks(property.Failures, "%s does not start, whose log has an entry of a later program: %v", l.name, err)
	}
	gc := u.w.groupConfig
	gc.ID, gc.Joins = group, u.w.joins(h)
	_, err = process.OpenGroup(ctx, gc, u.w.deafMachine())
	want := fmt.Sprintf("entry %d of its log in ", e.Index)
	if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "a later version of Millrace has written it") {
		u.w.breaks(property.StateMachineSafety, "%s opens group %d, whose log has entry %d of type %d, %.1q, of a later program: %v", l.name, group, e.Index, e.Type, e.Data, err)
	}
	if err := process.Close(ctx); err != nil {
		u.w.breaks(property.Failures, "%s does not close: %v", l.name, err)
	}
	l.dead = true
	u.withLog(disk.Mount(), h, group, func(log *wal.Log) error {
		if is, err := log.Group(group).Entries(e.Index, e.Index+1, 1<<20); err != nil || len(is) != 1 || is[0].Type != e.Type || string(is[0].Data) != string(e.Data) {
			u.w.breaks(property.StateMachineSafety, "%s has refused entry %d of a later program, and its log has %v afterwards (%v)", l.name, e.Index, is, err)
		}
		return nil
	})
}

// writeLater writes an entry of a later program at the end of a log, committed or not. It returns none if the
// log has no entries, or a snapshot replaces them when the host starts.
func (u *upgrades) writeLater(fsys vfs.FS, h *machine, group uint64) (e raftpb.Entry, err error) {
	err = u.withLog(fsys, h, group, func(log *wal.Log) error {
		g := log.Group(group)
		hard := g.HardState()
		if g.LastIndex() == 0 || newestOn(h.disk, group).Index > g.LastIndex() {
			return nil
		}
		e = laterEntry(u.later)
		e.Index, e.Term = g.LastIndex()+1, hard.Term
		w := wal.Write{Group: group, Entries: []raftpb.Entry{e}}
		if u.later.IntN(2) == 0 {
			hard.Commit = e.Index
			w.HardState = hard
		}
		return errors.Join(log.Append([]wal.Write{w}), log.Sync())
	})
	return e, err
}

func (u *upgrades) withLog(fsys vfs.FS, h *machine, group uint64, do func(*wal.Log) error) error {
	log, err := wal.Open(wal.Options{FS: fsys, Dir: directory + "/log", Owner: h.id, Scheduler: scheduler{&life{dead: true, w: u.w, host: h}}})
	if err != nil {
		return err
	}
	return errors.Join(do(log), log.Close())
}

// silence is a transport that carries nothing.
type silence struct{}

func (silence) Start(transport.Receiver)                      {}
func (silence) Send(uint64, []transport.Envelope) bool        { return false }
func (silence) SendBytes(uint64, transport.Kind, []byte) bool { return false }
func (silence) Close() error                                  { return nil }

// demoteOrPromote asks for the demotion of a voter whose machine is halted, or for the promotion of such a
// learner, as an operator does who has forgotten its program. It reports whether it has asked.
func (u *upgrades) demoteOrPromote(r *replica) bool {
	leads, id := u.w.leading(r.id), r.life.host.id
	if u.w.nemesis.stopped || leads == nil || u.w.churn == nil || u.w.churn.wiped != nil {
		return false
	}
	m := leads.group.Members()
	if m.Plan != "" || len(m.Outgoing) > 0 {
		return false
	}
	if !slices.Contains(m.Learners, id) {
		if len(m.Voters) <= 2 || !slices.Contains(m.Voters, id) || leads == r {
			return false
		}
		u.w.churn.start(leads, host.DemoteMember(id))
		return true
	}
	_, _ = leads.group.WaitPlan(ended, host.PromoteMember(id)) // it asks the members what they can do
	u.w.plan(between(u.later, time.Millisecond, 100*time.Millisecond), "an operator promotes a learner", nil, func() {
		if !u.w.nemesis.stopped && u.w.churn.wiped == nil && leads.group != nil && !leads.closing && !leads.life.dead {
			u.w.churn.start(leads, host.PromoteMember(id))
		}
	})
	return true
}

// checkPromotions: the member that has made a plan knows of no learner in it that becomes a voter though its
// program cannot do the version of the group.
func (w *world) checkPromotions(r *replica, p *host.MemberPlan) {
	m := r.group.Members()
	for _, info := range m.All {
		becomes := slices.Contains(m.Learners, info.ID) && slices.ContainsFunc(p.Stages, func(s host.PlanStage) bool { return slices.Contains(s.Voters, info.ID) })
		if becomes && info.KnowsVersions && !info.Versions.Can(m.MachineVersion) {
			w.breaks(property.StateMachineSafety, "%s plans to promote host %d, which it knows to do %v, and the group is at version %d: %v", r.name, info.ID, info.Versions, m.MachineVersion, p)
		}
	}
}

// isOldProgram reports whether a plan is refused because the program of a learner cannot do the version.
func isOldProgram(err error) bool { return strings.Contains(err.Error(), "so its machine is halted") }
