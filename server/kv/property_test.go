package kv

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/server/command"
	"github.com/millrace/millrace/server/feed"
	"github.com/millrace/millrace/server/lease"
)

var (
	propertyCommands = flag.Int("property.commands", 10_000, "commands of each run of the property test")
	propertySeed     = flag.Uint64("property.seed", 0, "0: seeds 1 and 2")
)

// TestProperty applies random commands to a machine and to its naive twin, in random batches, beside the
// sweep, with restarts, crashes and snapshots between them. Every answer must be the twin's, and so must
// reads with every option at every revision, the history, and the feed.
func TestProperty(t *testing.T) {
	for name := range engines {
		for seed := uint64(1); seed <= 2; seed++ {
			if *propertySeed != 0 {
				seed = *propertySeed
			}
			t.Run(fmt.Sprintf("%s-%d", name, seed), func(t *testing.T) { newRun(t, name, seed).run(*propertyCommands) })
			if *propertySeed != 0 {
				break
			}
		}
	}
}

// run is a machine with its twin.
type run struct {
	*testing.T
	draw
	m    *Machine
	fs   *vfs.MemFS
	open func(vfs.FS, string) (*Machine, error)
	twin *model
	log  []millrace.Command[[]byte] // by index, from 1
	now  time.Duration
	next int64 // cursor of the feed
}

func newRun(t *testing.T, engine string, seed uint64) *run {
	r := &run{T: t, draw: draw{rand.New(rand.NewPCG(seed, 36))}, fs: vfs.NewCrashableMem(), open: engines[engine], twin: newModel(), next: 2}
	r.m = must(r.open(r.fs, "state"))
	t.Cleanup(func() {
		if err := r.m.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *run) run(commands int) {
	for len(r.log) < commands {
		r.step(1 + r.IntN(8))
		for range 3 {
			r.checkRange()
			r.checkKey()
		}
		switch r.IntN(40) {
		case 0:
			r.checkHistory(max(r.twin.revision()-int64(r.IntN(40)), 1), feed.Range{Key: r.key(), End: r.end()})
		case 1:
			r.checkLeases()
		case 2:
			r.restart()
		case 3:
			r.snapshot()
		case 4:
			r.awaitSweep()
		}
		r.checkFeed()
	}
	r.awaitSweep()
	for rev := max(r.twin.compacted, 1); rev <= r.twin.revision(); rev++ { // every revision once more
		req := &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, Revision: rev}
		r.compareRange(req)
	}
	r.checkSizes()
}

// step applies a batch.
func (r *run) step(n int) {
	batch, want := make([]millrace.Command[[]byte], n), make([]func(command.Result), n)
	for i := range batch {
		r.now += time.Duration(r.IntN(2000)) * time.Millisecond
		batch[i] = millrace.Command[[]byte]{Index: uint64(len(r.log) + 1), Time: r.now, Awaited: !r.oneIn(4)}
		batch[i].Value, want[i] = r.command(batch[i].Awaited)
		r.log = append(r.log, batch[i])
	}
	results := make([]command.Result, n)
	if err := r.m.Apply(batch, results); err != nil {
		r.Fatal(err)
	}
	for i := range results {
		want[i](results[i])
	}
}

// command draws a command, applies it to the twin, and returns what checks the machine's result.
func (r *run) command(awaited bool) ([]byte, func(command.Result)) {
	var b []byte
	var resp proto.Message
	var code command.Code
	var ttls []int64
	var expired int64
	about := ""
	switch k := r.IntN(100); {
	case k < 35:
		req := r.put()
		b, about = must(command.Put(req)), fmt.Sprint("put ", req)
		t := &modelTxn{ops: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: req}}}}
		if code = t.refuse(r.twin); code == 0 {
			c := r.twin.begin()
			resp, code = c.put(req)
			c.end()
		}
	case k < 45:
		req := r.delete()
		b, about = must(command.DeleteRange(req)), fmt.Sprint("delete ", req)
		c := r.twin.begin()
		resp = c.delete(req)
		c.end()
	case k < 75:
		var free map[string]bool
		if r.oneIn(2) {
			free = allFree()
		}
		req := r.txn(r.twin, 1, free)
		b, about = must(command.Txn(req)), fmt.Sprint("txn ", req)
		resp, code = r.twin.txn(req)
	case k < 78:
		rev := r.revision(r.twin)
		b, about = must(command.Compact(&pb.CompactionRequest{Revision: rev})), fmt.Sprint("compact ", rev)
		switch {
		case rev <= r.twin.compacted:
			code = command.Compacted
		case rev > r.twin.revision():
			code = command.FutureRevision
		default:
			r.twin.compact(rev)
			resp = &pb.CompactionResponse{Header: &pb.ResponseHeader{Revision: r.twin.revision()}}
		}
	case k < 84:
		id, ttl := r.lease(), int64(1+r.IntN(30))
		b, about = command.LeaseGrant(id, ttl), fmt.Sprint("grant ", id)
		switch {
		case id == 0:
			code = command.LeaseNotFound
		case r.twin.leases[id] != nil:
			code = command.LeaseExists
		default:
			r.twin.leases[id] = &modelLease{ttl: ttl, deadline: r.now + time.Duration(ttl)*time.Second}
			resp = &pb.LeaseGrantResponse{Header: &pb.ResponseHeader{Revision: r.twin.revision()}, ID: id, TTL: ttl}
		}
	case k < 87:
		id := r.lease()
		b, about = command.LeaseRevoke(id), fmt.Sprint("revoke ", id)
		if code = command.LeaseNotFound; r.twin.leases[id] != nil {
			code = 0
			r.twin.endLease(id)
			resp = &pb.LeaseRevokeResponse{Header: &pb.ResponseHeader{Revision: r.twin.revision()}}
		}
	case k < 93:
		var ids []int64
		for range r.IntN(4) {
			id := r.lease()
			ids = append(ids, id)
			ttl := int64(0)
			if l := r.twin.leases[id]; l != nil {
				l.number++
				l.deadline = max(l.deadline, r.now+time.Duration(l.ttl)*time.Second)
				ttl = l.ttl
			}
			ttls = append(ttls, ttl)
		}
		b, about = command.LeaseRenew(ids), fmt.Sprint("renew ", ids)
	case k < 98:
		var of []lease.Renewal
		for range r.IntN(4) {
			n := lease.Renewal{ID: r.lease()}
			if l := r.twin.leases[n.ID]; l != nil && l.number > 0 {
				n.Number = l.number - uint64(r.IntN(2))
			}
			of = append(of, n)
		}
		b, about = command.LeaseExpire(of), fmt.Sprint("expire ", of)
		expired = r.twin.expire(of, r.now)
	default:
		b = make([]byte, r.IntN(12))
		for i := range b {
			b[i] = byte(r.IntN(256))
		}
		about = fmt.Sprintf("bytes %x", b)
		if len(b) > 1 {
			b[0] = command.Version + 1
			code = command.Unsupported
		} else {
			code = command.Malformed
		}
	}
	revision := r.twin.revision()
	index := len(r.log) + 1
	return b, func(have command.Result) {
		r.Helper()
		if have.Err != code || have.Revision != revision || fmt.Sprint(have.TTLs) != fmt.Sprint(ttls) || have.Expired != expired {
			r.Fatalf("command %d, %s: have %+v, want code %d, revision %d, TTLs %v, %d expired", index, about, have, code, revision, ttls, expired)
		}
		switch {
		case !awaited || code != 0 || resp == nil:
			if len(have.Response) > 0 {
				r.Fatalf("command %d, %s: a response that is not wanted", index, about)
			}
		default:
			got := resp.ProtoReflect().New().Interface()
			if err := proto.Unmarshal(have.Response, got); err != nil || !proto.Equal(got, resp) {
				r.Fatalf("command %d, %s:\nhave %v (%v)\nwant %v", index, about, got, err, resp)
			}
		}
	}
}

func (r *run) checkRange() {
	r.compareRange(r.rangeOf(r.twin))
}

// checkKey reads a key as it is now, and as it was a little earlier: the second time from the cache.
func (r *run) checkKey() {
	key := r.key()
	for _, back := range []int64{0, 0, int64(r.IntN(3))} {
		req := &pb.RangeRequest{Key: key}
		if back > 0 {
			req.Revision = max(r.twin.revision()-back, 1)
		}
		r.compareRange(req)
	}
}

func (r *run) compareRange(req *pb.RangeRequest) {
	r.Helper()
	want, code := r.twin.rangeAt(req, r.twin.states[r.twin.revision()], r.twin.revision())
	have, err := r.m.Range(r.Context(), req)
	if !errors.Is(err, command.Error(code)) || err == nil && !proto.Equal(have, want) {
		r.Fatalf("range %v:\nhave %v (%v)\nwant %v (%v)", req, have, err, want, command.Error(code))
	}
	if streams := req.SortOrder == pb.RangeRequest_NONE || req.SortTarget == pb.RangeRequest_KEY && req.SortOrder == pb.RangeRequest_ASCEND; streams && req.MinModRevision|req.MaxModRevision|req.MinCreateRevision|req.MaxCreateRevision == 0 {
		all := &pb.RangeResponse{}
		err := r.m.RangeStream(r.Context(), req, func(part *pb.RangeStreamResponse) error {
			proto.Merge(all, part.RangeResponse)
			return nil
		})
		if !errors.Is(err, command.Error(code)) || err == nil && !proto.Equal(all, want) {
			r.Fatalf("stream of range %v:\nhave %v (%v)\nwant %v", req, all, err, want)
		}
	}
}

// checkHistory replays the history of a range from a revision, in parts.
func (r *run) checkHistory(from int64, of feed.Range) {
	if from < r.twin.compacted {
		if _, _, err := r.m.History(r.Context(), from, []feed.Range{of}, 100, true); !errors.Is(err, command.Error(command.Compacted)) {
			r.Fatalf("the history from %d, compacted at %d: %v", from, r.twin.compacted, err)
		}
		from = r.twin.compacted
	}
	rev := from
	for next := from; next <= r.twin.revision(); {
		batches, n, err := r.m.History(r.Context(), next, []feed.Range{of}, 1+r.IntN(500), true)
		if err != nil || n <= next {
			r.Fatalf("the history from %d: %v, continues with %d", next, err, n)
		}
		for _, b := range batches {
			for ; rev < b.Revision; rev++ {
				r.compareEvents(rev, of, nil, true)
			}
			r.compareEvents(rev, of, b.Events, true)
			rev++
		}
		for next = n; rev < next; rev++ {
			r.compareEvents(rev, of, nil, true)
		}
	}
}

// compareEvents compares the events of one revision.
func (r *run) compareEvents(rev int64, of feed.Range, have []feed.Event, prev bool) {
	r.Helper()
	var want []*mvccpb.Event
	changes := map[string]int{}
	for _, e := range r.twin.events[rev] {
		changes[string(e.Kv.Key)]++
		if !of.Contains(e.Kv.Key) {
			continue
		}
		want = append(want, e)
	}
	if rev == r.twin.compacted { // of several changes of one key the sweep may have removed all but the last
		have = lastOfEach(have)
		want = lastOfEach(want)
	}
	if len(have) != len(want) {
		r.Fatalf("revision %d has %d events, want %d: %v, %v", rev, len(have), len(want), have, want)
	}
	for i, e := range have {
		full := &mvccpb.Event{Type: e.Type, Kv: e.Kv}
		if !proto.Equal(full, want[i]) {
			r.Fatalf("revision %d, event %d: %v, want %v", rev, i, full, want[i])
		}
		key := e.Kv.Key
		if !prev || changes[string(key)] > 1 || rev-1 < max(r.twin.compacted, 1) {
			continue
		}
		was := r.twin.states[rev-1][string(key)]
		if e.PrevKv == nil {
			e.PrevKv = must(r.m.Previous(e))
		}
		if e.PrevKv == nil && was != nil || !proto.Equal(e.PrevKv, was) && was != nil || e.PrevKv != nil && was == nil {
			r.Fatalf("revision %d, event %d: it was %v, want %v", rev, i, e.PrevKv, was)
		}
	}
}

// lastOfEach returns the last event of each key.
func lastOfEach[E interface{ GetKv() *mvccpb.KeyValue }](events []E) (kept []E) {
	for i, e := range events {
		if !slices.ContainsFunc(events[i+1:], func(later E) bool { return bytes.Equal(later.GetKv().Key, e.GetKv().Key) }) {
			kept = append(kept, e)
		}
	}
	return kept
}

// checkFeed reads the feed to its end.
func (r *run) checkFeed() {
	batches, next, behind := r.m.Feed().Next(r.next)
	if behind {
		r.Fatalf("the feed is behind at %d of %d", r.next, r.twin.revision())
	}
	rev := r.next
	for _, b := range batches {
		if b.Revision != rev {
			r.Fatalf("the feed has revision %d, want %d", b.Revision, rev)
		}
		r.compareEvents(rev, everything, b.Events, false)
		rev++
	}
	if next != r.twin.revision()+1 || rev != next {
		r.Fatalf("the feed continues with %d and has %d, want %d", next, rev, r.twin.revision()+1)
	}
	r.next = next
}

func (r *run) checkLeases() {
	infos := r.m.Leases()
	if len(infos) != len(r.twin.leases) {
		r.Fatalf("leases %v, want %v", infos, r.twin.leases)
	}
	for _, i := range infos {
		want := r.twin.leases[i.ID]
		if want == nil || i.TTL != want.ttl || i.Deadline != want.deadline || i.Number != want.number {
			r.Fatalf("lease %+v, want %+v", i, want)
		}
		_, keys, _ := r.m.Lease(i.ID, true)
		var of [][]byte
		for _, kv := range keysIn(r.twin.states[r.twin.revision()], []byte{0}, []byte{0}) {
			if kv.Lease == i.ID {
				of = append(of, kv.Key)
			}
		}
		if fmt.Sprintf("%q", keys) != fmt.Sprintf("%q", of) {
			r.Fatalf("lease %d has keys %q, want %q", i.ID, keys, of)
		}
	}
	due, _ := r.m.DueLeases(r.now, 10)
	n := 0
	for _, l := range r.twin.leases {
		if l.deadline <= r.now {
			n++
		}
	}
	if len(due) != n {
		r.Fatalf("%d leases are due, want %d", len(due), n)
	}
}

var everything = feed.Range{Key: []byte{0}, End: []byte{0}}

// awaitSweep waits until the sweep has reached the compact revision, and reads what that has left.
func (r *run) awaitSweep() {
	for {
		through, wait := r.m.Swept()
		if through >= r.twin.compacted {
			r.checkHistory(max(r.twin.compacted, 1), everything)
			return
		}
		select {
		case <-wait:
		case <-time.After(30 * time.Second):
			r.Fatalf("the sweep is at %d, and the compact revision %d", through, r.twin.compacted)
		}
	}
}

// restart closes the machine, or crashes its disk, and applies again what it has lost.
func (r *run) restart() {
	if r.m.disk == nil {
		return
	}
	if r.oneIn(2) {
		if r.oneIn(2) {
			if err := (durable{r.m}).Sync(); err != nil {
				r.Fatal(err)
			}
		}
		r.fs = r.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: r.IntN(101), RNG: r.Rand})
		before := r.m
		r.m = must(r.open(r.fs, "state"))
		_ = before.Close()
	} else {
		if err := r.m.Close(); err != nil {
			r.Fatal(err)
		}
		r.m = must(r.open(r.fs, "state"))
	}
	r.replay()
}

// replay applies what is behind the machine's state.
func (r *run) replay() {
	from := r.m.Applied()
	if r.m.disk != nil {
		if d, err := (durable{r.m}).Applied(); d != from || err != nil {
			r.Fatalf("after a start it has %d commands, and %d are durable (%v)", from, d, err)
		}
	}
	for rest := r.log[from:]; len(rest) > 0; {
		n := min(1+r.IntN(50), len(rest))
		batch := make([]millrace.Command[[]byte], n)
		copy(batch, rest)
		for i := range batch {
			batch[i].Awaited = false
		}
		if err := r.m.Apply(batch, make([]command.Result, n)); err != nil {
			r.Fatal(err)
		}
		rest = rest[n:]
	}
	if rev, compacted := r.m.Revision(); rev != r.twin.revision() || compacted != r.twin.compacted {
		r.Fatalf("after a start it is at revision %d, compacted %d, want %d, %d", rev, compacted, r.twin.revision(), r.twin.compacted)
	}
	r.next = r.twin.revision() + 1
}

// snapshot takes a snapshot, applies more, writes it, and continues with a machine that is restored from it.
func (r *run) snapshot() {
	sm := r.m.Millrace().StateMachine()
	snap, err := sm.Snapshot()
	if err != nil {
		r.Fatal(err)
	}
	closed := false
	r.Cleanup(func() { // of a test that fails: the machine waits for its snapshots
		if !closed {
			_ = snap.Close()
		}
	})
	at, revision, compacted := len(r.log), r.twin.revision(), r.twin.compacted
	states := slices.Clone(r.twin.states[max(compacted, 1):]) // the twin forgets what is compacted
	for range r.IntN(20) {
		r.step(1 + r.IntN(8))
	}
	r.checkFeed()
	var stream bytes.Buffer
	if err := snap.WriteTo(r.Context(), &stream); err != nil {
		r.Fatal(err)
	}
	fs := vfs.NewCrashableMem()
	files := &sentFiles{to: fs, files: map[string][]byte{}}
	if f, ok := snap.(millrace.FileSnapshot); ok {
		files.read(r.T, r.fs, f)
	}
	closed = true
	if err := snap.Close(); err != nil {
		r.Fatal(err)
	}
	m := must(r.open(fs, "state"))
	if r.oneIn(2) { // a machine that has a state already
		batch := []millrace.Command[[]byte]{{Index: 1, Value: put("other", "state")}}
		if err := m.Apply(batch, make([]command.Result, 1)); err != nil {
			r.Fatal(err)
		}
	}
	switch sm := m.Millrace().StateMachine().(type) {
	case millrace.FileRestorer:
		err = sm.RestoreFiles(r.Context(), &stream, files)
	default:
		err = m.Millrace().StateMachine().Restore(r.Context(), &stream)
	}
	if err != nil {
		r.Fatal(err)
	}
	if have := m.Applied(); have != uint64(at) {
		r.Fatalf("the restored machine has %d commands, want %d", have, at)
	}
	for rev := max(compacted, 1); rev <= revision; rev++ {
		resp, err := m.Range(r.Context(), &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, Revision: rev})
		want := &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: revision}, Kvs: keysIn(states[rev-max(compacted, 1)], []byte{0}, []byte{0})}
		want.Count = int64(len(want.Kvs))
		if err != nil || !proto.Equal(resp, want) {
			r.Fatalf("behind a restore, revision %d of %d is\n%v (%v), want\n%v", rev, revision, resp, err, want)
		}
	}
	was := r.m
	r.m, r.fs = m, fs
	r.replay()
	if have, want := r.m.digest(), was.digest(); have != want {
		r.Fatalf("behind a restore the digest is %x, want %x", have, want)
	}
	if err := was.Close(); err != nil {
		r.Fatal(err)
	}
}

// sentFiles is the files of a snapshot as a member gets them: millrace.SnapshotFiles.
type sentFiles struct {
	to    vfs.FS
	files map[string][]byte
}

func (f *sentFiles) read(t *testing.T, fs vfs.FS, of millrace.FileSnapshot) {
	for _, file := range of.Files() {
		r, err := fs.Open(file.Path)
		if err != nil {
			t.Fatal(err)
		}
		f.files[file.Name] = must(io.ReadAll(r))
		_ = r.Close()
	}
}

func (f *sentFiles) Names() (names []string) {
	for name := range f.files {
		names = append(names, name)
	}
	return names
}

func (f *sentFiles) Open(name string) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(f.files[name])), nil
}

func (f *sentFiles) Link(name, path string) error {
	return writeFile(f.to, path, bytes.NewReader(f.files[name]))
}

// checkSizes compares the bytes in use with those of the versions that the twin keeps.
func (r *run) checkSizes() {
	var live int64
	for _, kv := range r.twin.states[r.twin.revision()] {
		live += int64(len(kv.Key)+len(kv.Value)) + 64
	}
	if have := r.m.store.Load().Visible().Live; have != live {
		r.Fatalf("the keys have %d bytes, want %d", have, live)
	}
}
