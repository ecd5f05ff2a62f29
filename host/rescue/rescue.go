package rescue

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs"
)

// A rescue makes one survivor a cluster of its own, on the day when a majority is gone for good. It is made
// offline, on the best of the directories that are given: the one whose log ends with the highest term and
// index. What is in that log counts as committed, whether it was or not, and what only others had is lost.
//
// The cluster is a new one and the directory, too: number and incarnation are drawn. So hosts of the old
// cluster, and of another rescue of it, refuse this host at the hello, whatever they believe to be committed.
// Invariant: no host counts entries of two directories that were rescued apart.
//
// Raft has no word for this: a minority decides. That is why it is a person's decision, by name
// (Rescue.AcceptLoss), and not one of a running host.
//
// survivor.go reads the directories, directory.go writes. Decision 0023 has the reasons, and what was
// rejected.

// Rescue says what to rescue.
type Rescue struct {
	// Dirs are the directories of the hosts that are left (Config.Dir), all of them stopped. One of them is
	// rescued. The more are given, the less may be lost.
	Dirs []string
	// Groups are the groups to rescue. The directory leaves all others behind. If it is nil, all groups are
	// rescued that were founded; if there are several, writing needs All.
	Groups []uint64
	All    bool
	// Write carries the rescue out. It needs AcceptLoss, too: what was acknowledged may be lost, and the
	// members that are gone must never come back as what they were.
	Write, AcceptLoss bool
}

// Report says what a rescue does, or has done. The JSON names are what "millrace members rescue --json"
// prints; they stay as they are.
type Report struct {
	Dirs []Dir `json:"dirs"`
	// Dir is the one that is rescued; "" if none can be.
	Dir     string   `json:"dir"`
	Host    uint64   `json:"host"`
	Former  uint64   `json:"former_cluster,string"`
	Groups  []Group  `json:"groups"`
	Left    []uint64 `json:"left_behind"`
	Refused []string `json:"refused"`
	// Done is set when the directory is that of the new cluster. Cluster and Incarnation are drawn then.
	Done        bool                  `json:"done"`
	Cluster     uint64                `json:"cluster,string"`
	Incarnation transport.Incarnation `json:"incarnation"`
	// Kept is where the old log is. Remove it when the cluster is well.
	Kept string `json:"kept"`
	// Continues says that an interrupted rescue of the directory is finished, as it was begun.
	Continues bool `json:"continues"`
}

// Dir is one of the directories.
type Dir struct {
	Dir         string                `json:"dir"`
	Host        uint64                `json:"host"`
	Incarnation transport.Incarnation `json:"incarnation"`
	// WithoutAuthority means that its log may lack what the host has acknowledged.
	WithoutAuthority bool `json:"without_authority"`
}

// Group is one group, as the directory that is rescued has it.
type Group struct {
	Group uint64 `json:"group"`
	// Last and LastTerm are the last entry that is kept. Snapshot is the index of the snapshot with which the
	// state begins; 0: it begins with the first entry.
	Last     uint64 `json:"last"`
	LastTerm uint64 `json:"last_term"`
	Snapshot uint64 `json:"snapshot"`
	// Committed is the highest index that any of the directories knows as committed. The entries behind it
	// may have been committed or not; they count as committed now. Doubtful are the first of them.
	Committed uint64  `json:"committed"`
	Doubtful  []Entry `json:"doubtful"`
	// Members are those of the old group. Those that are not Given were not looked at.
	Members []Member `json:"members"`
	// Ends are the ends of this group's log in all directories that have it.
	Ends []End `json:"ends"`
	// Plan is a plan of the members that was under way, and is cancelled.
	Plan string `json:"plan,omitempty"`
	// Index is the entry that makes this host the only member.
	Index uint64 `json:"index"`
}

// Entry is an entry that may not have been committed.
type Entry struct {
	Index uint64 `json:"index"`
	Term  uint64 `json:"term"`
	Type  string `json:"type"`
	Bytes int    `json:"bytes"`
}

// Member is a member of the old group.
type Member struct {
	ID    uint64 `json:"id"`
	Role  string `json:"role"`
	Given bool   `json:"given"`
}

// End is where a group ends in one directory. It is Refused if that is not the one to rescue.
type End struct {
	Dir       string `json:"dir"`
	Host      uint64 `json:"host"`
	Last      uint64 `json:"last"`
	LastTerm  uint64 `json:"last_term"`
	Committed uint64 `json:"committed"`
	Refused   string `json:"refused,omitempty"`
}

// ErrNotRescued is wrapped by the error that refuses to write. What Rescue returns beside it says why.
var ErrNotRescued = errors.New("millrace: nothing was rescued, and nothing was changed")

// maxDoubtful bounds the entries of a group that are listed.
const maxDoubtful = 1000

// Run says what a rescue would do, and what may be lost; with Write it does that. No host may run on any of
// the directories. The error says that a directory cannot be read or is in use; if it wraps ErrNotRescued,
// Refused says why nothing was rescued.
//
// A rescue that is interrupted can be run again. Until the directory is marked, it is as it was. After that
// Open refuses it, and the next run finishes the rescue. Options.OpenLog must be nil.
func (r Rescue) Run(ctx context.Context, o Options) (_ *Report, err error) {
	if o, err = o.withDefaults(); err != nil {
		return nil, err
	}
	switch {
	case o.OpenLog != nil:
		return nil, errors.New("millrace: a rescue reads and writes logs of package wal; leave Options.OpenLog out")
	case len(r.Dirs) == 0:
		return nil, errors.New("millrace: a rescue needs a directory")
	case slices.Contains(r.Groups, 0):
		return nil, errors.New("millrace: groups are numbered from 1")
	}
	w := rescue{options: o, asked: r}
	defer func() { err = errors.Join(err, w.close()) }()
	for _, dir := range r.Dirs {
		if err := w.enter(ctx, dir); err != nil {
			return nil, err
		}
	}
	if at := slices.IndexFunc(w.dirs, func(d *survivor) bool { return d.begun != nil }); at >= 0 {
		return w.proceed(ctx, w.dirs[at])
	}
	return w.run(ctx)
}

// rescue is one run.
type rescue struct {
	options Options
	asked   Rescue
	dirs    []*survivor
	done    Report
}

func (w *rescue) close() (err error) {
	for _, d := range w.dirs {
		err = errors.Join(err, d.close())
	}
	return err
}

func (w *rescue) run(ctx context.Context) (*Report, error) {
	for _, d := range w.dirs {
		w.done.Dirs = append(w.done.Dirs, Dir{Dir: d.dir, Host: d.identity.ID, Incarnation: d.identity.Incarnation, WithoutAuthority: d.amnesia})
	}
	w.refuse(w.rejectDirs())
	best := w.judge()
	if best != nil {
		w.describe(best)
	}
	if !w.asked.Write {
		return &w.done, nil
	}
	if !w.asked.AcceptLoss {
		w.refuse(errors.New("writing needs the acceptance of the loss, by name (--accept-loss); what this directory lacks is lost for good; the members that were not looked at must never come back as members of the old cluster with clients that believe them"))
	}
	if len(w.done.Refused) > 0 {
		return &w.done, ErrNotRescued
	}
	return &w.done, w.write(ctx, best)
}

func (w *rescue) refuse(err error) {
	if err != nil {
		w.done.Refused = append(w.done.Refused, err.Error())
	}
}

// rejectDirs says why directories cannot be compared, or returns nil.
func (w *rescue) rejectDirs() error {
	for i, d := range w.dirs {
		for _, other := range w.dirs[:i] {
			switch {
			case d.identity.Cluster != other.identity.Cluster:
				return fmt.Errorf("%s belongs to cluster %d, and %s to cluster %d; rescue one of them at a time", other.dir, other.identity.Cluster, d.dir, d.identity.Cluster)
			case d.identity.ID == other.identity.ID:
				return fmt.Errorf("%s and %s are both of host %d; give the newer one only", other.dir, d.dir, d.identity.ID)
			}
		}
	}
	return nil
}

// judge finds the directory whose log is the best in each group, and notes why the others are not.
func (w *rescue) judge() (best *survivor) {
	groups := w.groups()
	if len(groups) == 0 {
		w.refuse(errors.New("there is no group that can be rescued"))
		for _, d := range w.dirs {
			for _, id := range slices.Sorted(maps.Keys(d.groups)) {
				w.refuse(fmt.Errorf("group %d: %s: %s", id, d.dir, d.groups[id].unfit))
			}
		}
		return nil
	}
	for _, d := range w.dirs {
		if best == nil && !slices.ContainsFunc(groups, func(group uint64) bool { return w.isBehind(d, group) != "" }) {
			best = d
		}
	}
	if best == nil {
		for _, group := range groups {
			for _, d := range w.dirs {
				if why := w.isBehind(d, group); why != "" {
					w.refuse(fmt.Errorf("group %d: %s: %s", group, d.dir, why))
				}
			}
		}
		w.refuse(errors.New("no directory is the best in all groups; rescue the groups of one directory after those of another, by their numbers: each rescue makes a cluster of its own"))
		return nil
	}
	for _, group := range groups {
		w.refuse(w.rejectNeedless(best, group))
	}
	if w.asked.Write && w.asked.Groups == nil && !w.asked.All && len(groups) > 1 {
		w.refuse(fmt.Errorf("%s has %d groups, %v; name those to rescue (--group), or say that you mean all of them (--all)", best.dir, len(groups), groups))
	}
	return best
}

// groups returns the groups that were asked for, or all that some directory can be rescued with. The others
// are left behind: they were not founded, or their members have removed these hosts.
func (w *rescue) groups() (ids []uint64) {
	if w.asked.Groups != nil {
		ids = slices.Clone(w.asked.Groups)
	} else {
		for _, d := range w.dirs {
			for id := range d.groups {
				if d.has(id) {
					ids = append(ids, id)
				}
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// has reports whether a group can be rescued with this directory, if no other one is better.
func (d *survivor) has(group uint64) bool { g := d.groups[group]; return g != nil && g.unfit == "" }

// isBehind says why a directory is not the one with which a group is rescued, or returns "".
func (w *rescue) isBehind(d *survivor, group uint64) string {
	g := d.groups[group]
	if g == nil {
		return "it has nothing of the group"
	}
	if g.unfit != "" {
		return g.unfit
	}
	for _, other := range w.dirs {
		if o := other.groups[group]; other.has(group) && isAfter(o.last, g.last) {
			return fmt.Sprintf("it ends with entry %d of term %d, and %s with entry %d of term %d", g.last.Index, g.last.Term, other.dir, o.last.Index, o.last.Term)
		}
	}
	return ""
}

// isAfter compares the ends of two logs as an election does (thesis §3.6.1).
func isAfter(a, b raftpb.EntryID) bool {
	return cmp.Or(cmp.Compare(a.Term, b.Term), cmp.Compare(a.Index, b.Index)) > 0
}

// rejectNeedless says that a group needs no rescue, or returns nil: a quorum is left.
func (w *rescue) rejectNeedless(best *survivor, group uint64) error {
	g := best.groups[group]
	if g.roster.Spare(func(id uint64) bool { d := w.given(g, id); return d != nil && !d.amnesia }) < 0 {
		return nil
	}
	return fmt.Errorf("group %d has lost no majority: a quorum of its voters %v is among the directories given; start these hosts, and replace the others (ReplaceMember)", group, g.roster.Voters())
}

// given returns the directory of a member, if it is among those given and the member is bound to it.
func (w *rescue) given(g *survivingGroup, id uint64) *survivor {
	m, _ := g.roster.Member(id)
	at := slices.IndexFunc(w.dirs, func(d *survivor) bool {
		return d.identity.ID == id && d.identity.Incarnation == m.Incarnation && d.has(g.id)
	})
	if at < 0 {
		return nil
	}
	return w.dirs[at]
}

// describe notes what is kept of a directory, what is in doubt, and what is not known.
func (w *rescue) describe(best *survivor) {
	w.done.Dir, w.done.Host, w.done.Former = best.dir, best.identity.ID, best.identity.Cluster
	for _, group := range w.groups() {
		g := best.groups[group]
		of := Group{Group: group, Last: g.last.Index, LastTerm: g.last.Term, Snapshot: g.snapshot, Index: g.last.Index + 1}
		for _, d := range w.dirs {
			if o := d.groups[group]; o != nil {
				of.Committed = max(of.Committed, min(o.committed, g.last.Index))
				end := End{Dir: d.dir, Host: d.identity.ID, Last: o.last.Index, LastTerm: o.last.Term, Committed: o.committed}
				if d != best {
					end.Refused = cmp.Or(w.isBehind(d, group), "it is as good, and another one is rescued")
				}
				of.Ends = append(of.Ends, end)
			}
		}
		for _, m := range g.roster.Members {
			of.Members = append(of.Members, Member{ID: m.ID, Role: g.roster.Role(m.ID).String(), Given: w.given(g, m.ID) != nil})
		}
		if g.roster.Plan != nil {
			of.Plan = g.roster.Plan.String()
		}
		doubtful, err := g.doubtful(of.Committed)
		w.refuse(err)
		of.Doubtful = doubtful
		w.done.Groups = append(w.done.Groups, of)
	}
	for id := range best.groups {
		if !slices.ContainsFunc(w.done.Groups, func(g Group) bool { return g.Group == id }) {
			w.done.Left = append(w.done.Left, id)
		}
	}
	slices.Sort(w.done.Left)
}

// drawCluster draws the number of a cluster.
func (w *rescue) drawCluster(former uint64) (cluster uint64, err error) {
	for cluster == 0 || cluster == former {
		var b [8]byte
		if _, err := io.ReadFull(w.options.secrets(), b[:]); err != nil {
			return 0, fmt.Errorf("millrace: draw the number of the new cluster: %w", err)
		}
		cluster = binary.LittleEndian.Uint64(b[:]) >> 1
	}
	return cluster, nil
}

// enter locks a directory, and reads it.
func (w *rescue) enter(ctx context.Context, dir string) (err error) {
	if dir, err = vfs.Absolute(w.options.FS, filepath.Clean(dir)); err != nil {
		return identity.RelativePath("Rescue.Dirs", err)
	}
	if slices.ContainsFunc(w.dirs, func(d *survivor) bool { return d.dir == dir }) {
		return fmt.Errorf("millrace: %s is named twice", dir)
	}
	d := &survivor{fs: w.options.FS, dir: dir}
	if !w.asked.Write {
		d.fs = vfs.ReadOnly(d.fs) // no right to write is needed, and no byte is changed
	}
	w.dirs = append(w.dirs, d) // it is closed, whatever happens
	if err := d.enter(); err != nil || d.begun != nil {
		return err
	}
	return d.inspect(ctx)
}
