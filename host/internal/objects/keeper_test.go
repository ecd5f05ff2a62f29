package objects

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/turn"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/object/files"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/vfs/crashfs"
)

const election = 40

// script is the group of a Keeper that follows a script: no core, no lanes, no network.
type script struct {
	t     *testing.T
	disk  *crashfs.FS
	k     *Keeper
	piece func() bool // what a lane was given

	now            int64
	applied, waits uint64
	lost           uint64
	first, last    uint64
	stays          int64
	wants          int
	withoutAuth    bool
	roster         *membership.Roster
	sent           map[uint64][]byte
	proposed       [][]byte
	past           map[uint64]uint64
}

// newScript returns member 1 of the members 1, 2 and 3.
func newScript(t *testing.T) *script {
	r := membership.Founded([]membership.Member{{ID: 1}, {ID: 2}, {ID: 3}})
	w := &script{t: t, disk: crashfs.New(), roster: r, first: 1, sent: map[uint64][]byte{}, past: map[uint64]uint64{}}
	w.open()
	return w
}

func (w *script) open() {
	var err error
	w.k, err = New(Settings{
		Group: 7, Self: 1, FS: w.disk, Dir: "/objects", Heartbeat: 4, Election: election,
		Ticks: func(d time.Duration) int64 { return int64(d / time.Millisecond) }, Logger: slog.New(slog.DiscardHandler),
	}, w, nil)
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *script) Want()                                   { w.wants++ }
func (w *script) Wake()                                   {}
func (w *script) Apply()                                  {}
func (w *script) Applied() uint64                         { return w.applied }
func (w *script) WaitsAt() uint64                         { return w.waits }
func (w *script) Lose(index uint64)                       { w.lost = index }
func (w *script) UnavailableAt() uint64                   { return w.lost }
func (w *script) Stay(bytes int64)                        { w.stays += bytes }
func (w *script) FirstIndex() uint64                      { return w.first }
func (w *script) LastIndex() uint64                       { return w.last }
func (w *script) RosterAt(uint64) *membership.Roster      { return w.roster }
func (w *script) Members() []uint64                       { return []uint64{1, 2, 3} }
func (w *script) WithoutAuthority() bool                  { return w.withoutAuth }
func (w *script) IsLeaving() bool                         { return false }
func (w *script) Err() error                              { return nil }
func (w *script) Now() int64                              { return w.now }
func (w *script) Roster() *membership.Roster              { return w.roster }
func (w *script) LogTime() time.Duration                  { return 0 }
func (w *script) Stamp() (time.Duration, bool)            { return 0, true }
func (w *script) SendPast(to, index uint64)               { w.past[to] = index }
func (w *script) Work(_ string, piece func() bool) func() { w.piece = piece; return func() {} }
func (w *script) Propose(data []byte) error               { w.proposed = append(w.proposed, data); return nil }
func (w *script) Send(to uint64, record []byte) bool      { w.sent[to] = record; return true }

// put writes a set to the disk.
func (w *script) put(id object.ID) files.Info {
	w.t.Helper()
	u, err := w.k.files.Create(id, 100)
	if err == nil {
		_, err = u.Write(bytes.Repeat(id[:1], 10))
	}
	if err != nil {
		w.t.Fatal(err)
	}
	info, err := u.Publish()
	if err != nil {
		w.t.Fatal(err)
	}
	return info
}

// opens applies the command open.
func (w *script) opens(index uint64, id object.ID, info files.Info) {
	w.t.Helper()
	open := object.Opening{ID: id, Bytes: max(info.Bytes, 1), Hash: info.Hash, Manifest: max(info.Manifest, 1), Uploader: 1, Life: time.Hour}
	if err := w.k.Change(index, &object.Command{Opening: &open}); err != nil {
		w.t.Fatal(err)
	}
	w.applied, w.last = index, index
}

// leads is the status of the core of a leader, or of a follower of 2.
func (w *script) status(leads bool) raft.BasicStatus {
	st := raft.BasicStatus{}
	st.ID, st.Term, st.Lead, st.LastIndex, st.Durable = 1, 5, 2, w.last, w.last
	if leads {
		st.Lead, st.RaftState = 1, raft.StateLeader
	}
	return st
}

// holds returns the answer of a member that holds all but some sets.
func holds(from uint64, through uint64, missing ...object.ID) Record {
	return Record{From: from, Group: 7, term: 5, through: through, missing: missing}
}

// A leader proposes that a set is held when a quorum has said so, and not before.
func TestALeaderProposesAHold(t *testing.T) {
	w, id := newScript(t), object.ID{1}
	w.opens(3, id, w.put(id))
	w.k.Step(w.status(true))
	if len(w.proposed) > 0 || len(w.sent) != 2 {
		t.Fatalf("%d proposals of a set that one member holds, and %d members were asked, want 0 and 2", len(w.proposed), len(w.sent))
	}
	w.k.Heard(holds(2, 9, id), false)
	w.k.Heard(holds(3, 2), false)
	w.k.Step(w.status(true))
	if len(w.proposed) > 0 {
		t.Error("it is proposed, and one member lacks it, and the other has not applied so far")
	}
	if s := w.k.LackedBy(2); s != nil {
		t.Errorf("member 2 must not lead for lack of %v, which nothing may name", s.ID)
	}
	w.k.Heard(holds(2, 9), false)
	w.k.Step(w.status(true))
	if len(w.proposed) != 1 || w.k.Proposed() != 1 {
		t.Fatalf("%d proposals, want 1", len(w.proposed))
	}
	_, data, err := session.Decode(w.proposed[0])
	if err != nil {
		t.Fatal(err)
	}
	c, wrong := object.DecodeCommand(data)
	if wrong != nil || c.Holding == nil || c.Holding.ID != id || len(c.Holding.Holders) != 2 {
		t.Fatalf("proposed %+v, %v", c, wrong)
	}
	w.k.Step(w.status(true))
	if len(w.proposed) != 1 {
		t.Error("it is proposed again at once")
	}
	if err := w.k.Change(4, &c); err != nil || w.k.All()[0].Held != 4 {
		t.Errorf("the hold: %v, %+v", err, w.k.All())
	}
}

// A member that lacks what may be named must not lead, as long as it has said so lately.
func TestLackedBy(t *testing.T) {
	w, id := newScript(t), object.ID{1}
	w.opens(3, id, w.put(id))
	if err := w.k.Change(4, &object.Command{Holding: &object.Holding{ID: id, Holders: []object.Holder{{ID: 1}, {ID: 3}}}}); err != nil {
		t.Fatal(err)
	}
	w.k.Step(w.status(true))
	w.k.Heard(holds(2, 9, id), false)
	w.k.Step(w.status(true))
	if s := w.k.LackedBy(2); s == nil || s.ID != id || w.k.AreHeldBy(2) {
		t.Errorf("member 2 lacks %v, and holds all: %t", s, w.k.AreHeldBy(2))
	}
	w.now += 2*election + 1
	if s := w.k.LackedBy(2); s != nil {
		t.Error("member 2 is believed for ever")
	}
	w.k.Forget(2)
	if w.k.Heard(Record{From: 3, Group: 7, term: 5, through: 9, lost: 8}, false); w.past[3] != 0 {
		t.Fatal("setup")
	}
	w.k.Step(w.status(true))
	if w.past[3] != 8 {
		t.Errorf("member 3 waits at entry 8, and is sent what is past %d", w.past[3])
	}
}

// A follower answers its leader, and no other.
func TestAFollowerAnswers(t *testing.T) {
	w, id := newScript(t), object.ID{1}
	w.opens(3, id, w.put(id))
	q := Record{From: 3, Group: 7, term: 5, number: 4}
	w.k.Heard(q, true)
	w.k.Step(w.status(false))
	if r, err := Decode(w.sent[2]); err != nil || r.number != 0 || r.through != 3 || len(r.missing) > 0 {
		t.Errorf("told the leader %+v, %v", r, err)
	}
	if w.sent[3] != nil {
		t.Error("another member was answered")
	}
	clear(w.sent)
	w.k.Step(w.status(false))
	if len(w.sent) > 0 {
		t.Error("the same is said again")
	}
	q.From = 2
	w.k.Heard(q, true)
	w.k.Step(w.status(false))
	if r, err := Decode(w.sent[2]); err != nil || r.number != 4 {
		t.Errorf("answered %+v, %v", r, err)
	}
}

// Files that were here at the start stay until all that the log had then is applied, and as long as the log
// may lack what it had acknowledged.
func TestFilesOfBeforeAreJudged(t *testing.T) {
	w, known, stray := newScript(t), object.ID{1}, object.ID{2}
	info := w.put(known)
	w.put(stray)
	w.last, w.withoutAuth = 9, true
	w.open()
	w.opens(3, known, info)
	for _, step := range []func(){func() { w.applied, w.last = 8, 9 }, func() { w.applied = 9 }} {
		step()
		w.k.Applied()
		if len(w.k.condemn) > 0 {
			t.Fatalf("%v are condemned by a member without authority", w.k.condemn)
		}
	}
	w.withoutAuth, w.last = false, 12 // it has got back what it had lost
	w.k.Regained()
	if len(w.k.condemn) > 0 {
		t.Fatalf("%v are condemned at entry %d of %d", w.k.condemn, w.applied, w.last)
	}
	w.applied = 12
	w.k.Applied()
	if !slices.Equal(w.k.condemn, []object.ID{stray}) {
		t.Fatalf("condemned %v, want %v", w.k.condemn, stray)
	}
	w.piece()
	if all := w.k.files.All(); !slices.Equal(all, []object.ID{known}) {
		t.Errorf("the disk has %v", all)
	}
}

// A set is opened while its files are being removed, and the disk refuses that. They are not removed later.
func TestASetThatIsOpenedWhileItsFilesGo(t *testing.T) {
	w, id := newScript(t), object.ID{1}
	info := w.put(id)
	hooked := false
	w.disk.SetHook(func(crashfs.Op) error {
		if hooked {
			return nil
		}
		hooked = true
		w.opens(1, id, info)
		return syscall.EIO
	})
	w.k.condemn = []object.ID{id}
	w.piece()
	if _, lacks := w.k.lacking[id]; !hooked || len(w.k.ended) > 0 || len(w.k.condemn) > 0 || !lacks {
		t.Errorf("ended %v, condemned %v, lacking %v", w.k.ended, w.k.condemn, w.k.lacking)
	}
}

// The files of an object that has gone count for the next snapshot: they stay until the log begins behind the
// entry at which it went.
func TestAnObjectThatHasGoneCountsForTheLog(t *testing.T) {
	w, id := newScript(t), object.ID{3}
	info := w.put(id)
	if info.Bytes == 0 {
		t.Fatal("setup: no bytes")
	}
	w.k.mu.Lock()
	w.k.end([]object.Gone{{ID: id, Index: 9}, {ID: object.ID{4}, Index: 9}}) // the second is not here
	w.k.mu.Unlock()
	if w.stays != info.Bytes {
		t.Errorf("%d bytes count, want %d", w.stays, info.Bytes)
	}
	for _, first := range []uint64{9, 10} {
		w.first = first
		w.k.removeEnded()
		for w.piece() {
		}
		if _, here := w.k.files.Info(id); here != (first == 9) {
			t.Errorf("the log begins at entry %d, and the files are here: %t", first, here)
		}
	}
}

// An upload that is done says so, and leaves room for another.
func TestUploadsAreBounded(t *testing.T) {
	w := newScript(t)
	var all []*Upload
	for i := range MaxUploads {
		u, err := w.k.StartUpload(object.ID{byte(i + 1)}, time.Hour, 100)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, u)
	}
	if _, err := w.k.StartUpload(object.ID{200}, time.Hour, 100); err != ErrUploads {
		t.Fatalf("one too many: %v", err)
	}
	if err := all[0].Abort(); err != nil {
		t.Fatal(err)
	}
	if _, done, err := all[0].Outcome(); !done || err == nil {
		t.Errorf("an upload that was given up: %t, %v", done, err)
	}
	if _, err := io.WriteString(all[1], "abc"); err != nil {
		t.Fatal(err)
	}
	open, err := all[1].Publish()
	if err != nil || open.Bytes != 3 || open.Uploader != 1 {
		t.Fatalf("published %+v, %v", open, err)
	}
	if err := w.k.Change(2, &object.Command{Opening: &open}); err != nil {
		t.Fatal(err)
	}
	if _, done, _ := all[1].Outcome(); done {
		t.Error("it is done before a quorum holds it")
	}
	if err := w.k.Change(3, &object.Command{Holding: &object.Holding{ID: open.ID, Holders: []object.Holder{{ID: 1}, {ID: 2}}}}); err != nil {
		t.Fatal(err)
	}
	if s, done, err := all[1].Outcome(); !done || err != nil || s.Held != 3 {
		t.Errorf("it is held: %+v, %t, %v", s, done, err)
	}
}

// A Keeper that is nil is that of a group without objects.
func TestNoKeeper(t *testing.T) {
	var k *Keeper
	k.Regained()
	k.Forget(2)
	if k.LackedBy(2) != nil || !k.AreHeldBy(2) || k.WaitWith(nil, nil) != "" || k.Due() != turn.Never || k.All() != nil || k.Sent([32]byte{}) != nil ||
		k.Metrics() != (Metrics{}) || k.Awaits() != (object.ID{}) {
		t.Error("a group without objects has some")
	}
}

// A record is decoded as it was encoded. No other bytes are a record.
func TestRecord(t *testing.T) {
	for _, r := range []Record{
		{Group: 7, term: 1, number: 2},
		{Group: 1 << 63, term: 1 << 40, number: 3, through: 9, lost: 8, missing: []object.ID{{1}, {2}}},
	} {
		for _, kind := range []byte{control.ObjectQuestion, control.ObjectAnswer} {
			if kind == control.ObjectQuestion && r.missing != nil {
				continue
			}
			form := r.Encode(kind)
			if got, err := Decode(form); err != nil || fmt.Sprint(got) != fmt.Sprint(r) {
				t.Errorf("decoded %+v, %v, want %+v", got, err, r)
			}
			for n := 1; n < len(form); n++ {
				if _, err := Decode(form[:n]); err == nil {
					t.Errorf("the first %d of %d bytes are a record", n, len(form))
				}
			}
			if _, err := Decode(append(form, 0)); err == nil {
				t.Error("with another byte it is a record")
			}
		}
	}
}
