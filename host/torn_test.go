package host

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
)

// A member of a deposed leader holds 2@1 and 3@1, which never commit. The leader of term 2 has committed 2@2
// and 3@2. It sends them with its commit index, as to every member whose log conflicts. The power fails
// during that write. Whatever the disk keeps of the write, the member must not start with 2@1 or 3@1
// committed: the write is atomic (raft/doc.go says why; wal.Append promises it). Before it was, 12 of 32
// images at 1 KiB were wrong.

// tornWrite is a member whose power fails in the middle of the write of term 2.
type tornWrite struct {
	t     *testing.T
	lane  *testLane
	conf  raftpb.ConfState
	bytes int // of an entry's data
}

// way is how a pipeline writes what the core says to the log. cut ends in the middle of the last write.
type way struct {
	name string
	// save makes everything that the core says durable.
	save func(w *tornWrite, node *raft.RawNode)
	// cut writes everything that the core says, and does not sync.
	cut func(w *tornWrite, node *raft.RawNode)
}

var ways = []way{
	{"append lane", (*tornWrite).append, (*tornWrite).appendUnsynced}, // of pipeline.Async
	{"Save", (*tornWrite).save, (*tornWrite).saveUnsynced},            // of pipeline.Basic and pipeline.Parallel
}

func TestTornWriteCommitsNothing(t *testing.T) {
	for _, way := range ways {
		for _, size := range []int{20, 300, 1024} {
			t.Run(fmt.Sprintf("%s/%d bytes", way.name, size), func(t *testing.T) {
				w := &tornWrite{t: t, lane: newTestLane(t), conf: raftpb.ConfState{Voters: []uint64{1, 2, 3}}, bytes: size}
				node, err := raft.NewRawNode(w.config(storageWith(w.lane.log.Group(theGroup), w.conf), way.name == "append lane"))
				if err != nil {
					t.Fatal(err)
				}
				w.step(node, raftpb.Message{Type: raftpb.MsgApp, From: 2, To: 1, Term: 1, Entries: w.entries(1, 1, 3), Commit: 1})
				way.save(w, node)
				w.step(node, raftpb.Message{Type: raftpb.MsgApp, From: 3, To: 1, Term: 2, Index: 1, LogTerm: 1, Entries: w.entries(2, 2, 3), Commit: 3})
				way.cut(w, node)
				w.judge()
			})
		}
	}
}

func (w *tornWrite) config(s raft.Storage, async bool) *raft.Config {
	return &raft.Config{ID: 1, ElectionTick: 10, HeartbeatTick: 1, Storage: s, AsyncStorageWrites: async, MaxSizePerMsg: 1 << 20, MaxInflightMsgs: 16}
}

// entries returns the entries lo to hi of a term. Their data begins with index@term.
func (w *tornWrite) entries(term, lo, hi uint64) (es []raftpb.Entry) {
	for i := lo; i <= hi; i++ {
		data := bytes.Repeat([]byte{0xA5}, w.bytes)
		copy(data, fmt.Sprintf("%d@%d", i, term))
		es = append(es, raftpb.Entry{Term: term, Index: i, Data: data})
	}
	return es
}

func (w *tornWrite) step(node *raft.RawNode, m raftpb.Message) {
	w.t.Helper()
	if err := node.Step(m); err != nil {
		w.t.Fatal(err)
	}
}

func (w *tornWrite) queue(node *raft.RawNode) {
	for node.HasReady() {
		for _, m := range node.Ready().Messages {
			if m.To == raft.LocalAppendThread {
				w.lane.put(m)
			}
		}
	}
}

func (w *tornWrite) append(node *raft.RawNode) {
	w.queue(node)
	w.lane.run()
	for _, m := range w.lane.toGroup() {
		w.step(node, m)
	}
	w.queue(node)
	w.lane.run()
}

func (w *tornWrite) appendUnsynced(node *raft.RawNode) {
	w.queue(node)
	w.lane.RunOnce() // the write; the sync does not come
}

func (w *tornWrite) save(node *raft.RawNode) {
	s := &steps{member: member{id: theGroup, host: &Host{storage: hostStorage{log: w.lane.log}}}}
	for node.HasReady() {
		rd := node.Ready()
		if err := s.Save(rd.HardState, rd.Entries, rd.MustSync); err != nil {
			w.t.Fatal(err)
		}
		node.Advance(rd)
	}
}

// saveUnsynced saves on a disk whose sync fails.
func (w *tornWrite) saveUnsynced(node *raft.RawNode) {
	s, rd := &steps{member: member{id: theGroup, host: &Host{storage: hostStorage{log: w.lane.log}}}}, node.Ready()
	w.lane.disk.SetHook(crashfs.FailNth(crashfs.OpSync, 1, errors.New("power cut")))
	if err := s.Save(rd.HardState, rd.Entries, rd.MustSync); err == nil {
		w.t.Fatal("a save whose sync failed is done")
	}
	w.lane.disk.SetHook(nil)
}

// judge starts the member from each disk image that the power cut can leave.
func (w *tornWrite) judge() {
	t, images, whole := w.t, 0, 0
	for desc, image := range w.lane.disk.Images(2000, 1) {
		images++
		log := openLog(t, &manualEnv{}, image)
		g := log.Group(theGroup)
		node, err := raft.NewRawNode(w.config(storageWith(g, w.conf), false))
		if err != nil {
			t.Fatalf("image %s: %v", desc.Code(), err)
		}
		for node.HasReady() {
			rd := node.Ready()
			for _, e := range rd.CommittedEntries {
				if e.Index > 1 && e.Term == 1 {
					t.Errorf("image %s, lost %v: the member starts with %+v and applies %q, where the group has committed entry %d of term 2",
						desc.Code(), desc.Lost(), g.HardState(), e.Data[:3], e.Index)
				}
			}
			node.Advance(rd)
		}
		if g.HardState().Term == 2 {
			whole++
		}
		_ = log.Close()
	}
	if whole == 0 || whole == images {
		t.Errorf("of %d images %d hold the write; both kinds must be seen", images, whole)
	}
	t.Logf("%d images, of which %d hold the write", images, whole)
}

func storageWith(log GroupLog, conf raftpb.ConfState) *groupStorage {
	s := newStorage(log)
	s.Conf = conf
	return s
}
