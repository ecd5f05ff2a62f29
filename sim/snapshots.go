package sim

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/sim/property"
	"github.com/millrace/millrace/vfs/crashfs"
)

// Snapshots. In half of the seeds the groups take snapshots all the while, and begin from them after a
// crash, which may come at any disk operation of a snapshot. The state of a simulated machine is the set of
// commands that it has applied; its snapshot is the index of the last one, their number, a sum of their
// hashes, and some padding. Restore takes the commands from the ghost, and demands that there are as many,
// with the same sum. So a snapshot with a wrong state, a wrong index or a wrong log time is found, and so is
// a session that was lost with it: the next copy of a command is applied twice (ghost.apply).
//
//	promise                                              checked by
//	what the log lacks is in a snapshot on the disk      world.checkCompaction
//	a restored machine has the state of its index        replica.restore
//	log time and sessions go on                          replica.recordCommand, ghost.apply
//	a snapshot is of what would survive a crash          world.checkCompaction

// drawSnapshots draws when the groups of a run take snapshots.
func (w *world) drawSnapshots() {
	rng := splitSeed(w.options.Seed, 14)
	w.padding = pick(rng, 0, 100, 3000, 100_000)
	if rng.IntN(2) == 0 || w.options.small {
		w.groupConfig.Snapshots.Disabled = true
		return
	}
	w.groupConfig.Snapshots = host.SnapshotPolicy{
		LogBytes: pick(rng, int64(1<<10), 4<<10, 16<<10, 64<<10),
		Every:    pick(rng, 0, 0, 500*time.Millisecond),
		// A member that is far behind gets a snapshot in two of three runs, and entries in the others.
		KeepBytes: pick(rng, int64(1), 8<<10, 1<<30),
	}
	if !w.pipeline.AsyncStorageWrites() {
		w.groupConfig.Snapshots.KeepBytes = 1 << 30
		w.groupConfig.Snapshots.Disabled = w.mode.Unsafe() // a host that loses its power must keep its log
	}
}

// needsLogs reports whether no host may lose what it had durable in its log. Members of the synchronous
// pipelines install no snapshots, so a leader must have all that one of them lacks. A host that has lost a
// part of its log begins behind its own snapshot: it can lead, and has nothing before that.
func (w *world) needsLogs() bool {
	return !w.pipeline.AsyncStorageWrites() && !w.groupConfig.Snapshots.Disabled
}

// view is a snapshot of a replica's state machine.
type view struct {
	replica *replica
	text    string
}

func (r *replica) view() (statemachine.Snapshot, error) {
	if r.life.dead {
		return nil, crashfs.ErrCrashed
	}
	if r.suspect {
		r.life.w.breaks(property.SnapshotIsState, "the machine of %s has halted, and a snapshot is taken of its state", r.name)
	}
	r.life.capturing++
	text := fmt.Sprintf("%d %d %d %d %d", r.watch.applied.Index, r.watch.time, len(r.state), r.sum, r.members)
	if r.life.w.poisons != nil {
		text += " " + r.poisonIn()
	}
	return &view{r, text + "\n"}, nil
}

func (v *view) WriteTo(_ context.Context, w io.Writer) error {
	_, err := io.WriteString(w, v.text+strings.Repeat("#", v.replica.life.w.padding))
	return err
}

func (v *view) Close() error { return nil }

// restore makes the replica's state machine have the state of a view.
func (r *replica) restore(from io.Reader) error {
	if r.life.dead {
		return crashfs.ErrCrashed
	}
	text, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	var index, count, sum, members uint64
	var now time.Duration
	if _, err := fmt.Sscan(string(text), &index, &now, &count, &sum, &members); err != nil {
		return err
	}
	w, poison := r.life.w, ""
	if w.poisons != nil {
		if _, err := fmt.Sscan(string(text), &index, &now, &count, &sum, &members, &poison); err != nil {
			return err
		}
	}
	if index < r.watch.applied.Index && !r.suspect {
		w.breaks(property.SnapshotIsState, "%s has applied entry %v, and is restored to entry %d", r.name, r.watch.applied, index)
	}
	if index > max(r.ghost.last(), r.ghost.learnedThrough(index)) {
		w.breaks(property.SnapshotIsState, "%s is restored to entry %d, and no host has applied more than %d", r.name, index, r.ghost.last())
	}
	r.state, r.sum, r.seen, r.suspect = map[string]bool{}, 0, 0, false
	in := strings.Split(poison, ",")
	for _, c := range r.ghost.commands(1, index) {
		if !isPoison(c.command) || slices.Contains(in, c.command) {
			r.addToState(c.command)
		}
	}
	if uint64(len(r.state)) != count || r.sum != sum {
		w.breaks(property.SnapshotIsState, "%s is restored to entry %d, with %d commands whose sum is %x; hosts have applied %d through it, with %x", r.name, index, count, sum, len(r.state), r.sum)
	}
	for at, by := range r.ghost.skips {
		if by <= index && r.has(at) {
			w.breaks(property.SnapshotIsState, "%s is restored to entry %d, behind entry %d, which skips command %v, and has the effect of that", r.name, index, by, at)
		}
	}
	r.watch.applied, r.watch.time, r.restored = wholeEntry(index), now, index
	r.restoreMembers(index, members)
	w.count(Restores)
	r.restoredOnDisk(index)
	return nil
}

// addToState adds a command to the state.
func (r *replica) addToState(command string) {
	if !r.state[command] {
		r.state[command] = true
		r.sum += hashOf([]byte(command))
	}
}

// Snapshot and Restore implement host.Snapshotter.
func (m stateMachine) Snapshot() (statemachine.Snapshot, error) { return m.replica.view() }

func (m stateMachine) Restore(_ context.Context, from io.Reader) error {
	return m.replica.restore(from)
}

func (m callMachine) Snapshot() (statemachine.Snapshot, error) { return m.replica.view() }

func (m callMachine) Restore(_ context.Context, from io.Reader) error {
	return m.replica.restore(from)
}

// checkCompaction: when the log of a replica begins later than before, a snapshot on its disk covers what it
// lacks, also after the worst crash that the mode of durability covers.
func (w *world) checkCompaction(r *replica, s diagnosis.Status) {
	was := r.watch.status.FirstIndex
	if was == 0 || s.FirstIndex <= was {
		return
	}
	w.count(Compactions)
	loss, _ := w.lossToSurvive()
	disk := r.life.host.disk.Image(loss, nil)
	if last := snapshotOn(disk, r.id); last+1 < s.FirstIndex {
		w.breaks(property.Compacted, "the log of %s begins at entry %d, and after a crash with %v its disk has a snapshot through %d", r.name, s.FirstIndex, loss, last)
	}
}

// snapshotOn returns the index of the newest published snapshot of a group on a disk, or 0. It reads nothing
// but names.
func snapshotOn(disk *crashfs.FS, group uint64) uint64 { return newestOn(disk, group).Index }

// newestOn returns the last entry that the snapshot has, too.
func newestOn(disk *crashfs.FS, group uint64) (last raftpb.EntryID) {
	dir := fmt.Sprintf("%s/groups/%d/snapshots", directory, group)
	names, err := disk.ReadDir(dir)
	if err != nil {
		return last
	}
	for _, name := range names {
		var index, term uint64
		if _, err := fmt.Sscanf(name, "%x-%x", &index, &term); err != nil {
			continue
		}
		if f, err := disk.Open(dir + "/" + name + "/MANIFEST"); err == nil {
			f.Close()
			if index > last.Index {
				last = raftpb.EntryID{Term: term, Index: index}
			}
		}
	}
	return last
}

// Snapshots runs three hosts under load that take snapshots and compact their logs. It crashes them, one or
// all, at disk operations, in a group of plain entries or of commands. A member that is down comes back
// soon, so no log is compacted beyond what it has. The error, if any, is a *Violation.
func Snapshots(o Options) (Faults, error) {
	o.calls = o.Seed%2 == 0
	var faults Faults
	err := scenario(o, func(w *world, rng *rand.Rand) {
		defer func() { faults = w.faults }()
		w.groupConfig.Snapshots = host.SnapshotPolicy{LogBytes: pick(rng, int64(4<<10), 16<<10, 64<<10), KeepBytes: 128 << 10}
		w.config.SegmentBytes = pick(rng, int64(32<<10), 128<<10)
		w.config.MemoryBytes = 256 << 20
		w.net.slowest = pick(rng, 300*time.Microsecond, 3*time.Millisecond)
		w.startHosts()
		for range 12 {
			w.load(rng, 150)
			w.crashSome(rng)
			if !w.runUntil(w.now+healTime, w.areLevel) {
				w.breaks(property.SnapshotIsState, "%v after a crash the hosts are not level: %s", healTime, w.positions())
			}
		}
		w.startClients()
		w.endWell()
	})
	return faults, err
}

// load hands commands to the leader.
func (w *world) load(rng *rand.Rand, commands int) {
	for range commands {
		if h := w.leader(); h != nil && h.alive != nil {
			if r := h.alive.replicas[0]; r.group != nil && r.mayTakeMore() {
				w.clients.submitTo(r)
			}
		}
		w.pass(between(rng, 0, 4*time.Millisecond))
	}
}

// crashSome crashes one host or all, each at one of its next disk operations, and starts it again.
func (w *world) crashSome(rng *rand.Rand) {
	crashed := []*machine{pick(rng, w.hosts...)}
	if rng.IntN(3) == 0 {
		crashed = w.hosts
	}
	for _, h := range crashed {
		h.crashAtOperation(1+rng.IntN(60), pick(rng, crashfs.LoseAll, crashfs.LoseSome, crashfs.LoseNothing), func() {
			w.plan(between(rng, time.Millisecond, 100*time.Millisecond), fmt.Sprintf("host %d starts", h.id), nil, h.start)
		})
	}
	w.load(rng, 40)
	for _, h := range crashed {
		h.power.after = 0
	}
}

// areLevel reports whether all hosts are up and have applied the same.
func (w *world) areLevel() bool {
	var applied uint64
	for i, h := range w.hosts {
		if h.alive == nil || h.alive.process == nil || h.alive.replicas[0].group == nil {
			return false
		}
		s := h.alive.replicas[0].group.Status()
		if i > 0 && s.Applied != applied || s.Applied != s.LastIndex || s.LastIndex == 0 {
			return false
		}
		applied = s.Applied
	}
	return w.leader() != nil
}
