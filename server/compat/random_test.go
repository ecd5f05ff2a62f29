package compat

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

var (
	randomSeed     = flag.Uint64("compat.seed", 1, "TestRandom begins with this seed")
	randomRuns     = flag.Int("compat.runs", 2, "seeds of TestRandom, and of TestRandomMembers")
	randomRequests = flag.Int("compat.requests", 700, "requests of a seed of TestRandom")
)

// TestRandom sends the same random requests to both, one after the other, and compares all answers. It also
// compares the events of watches that begin and end between them. Few keys, values, leases and revisions are
// drawn, so that most requests meet what others have left. Such are a limit beside a filter of revisions, and
// an inner transaction that sees the puts of the outer one.
func TestRandom(t *testing.T) { eachSeed(t, 1) }

// TestRandomMembers does the same with three members: each request goes to one of them. Watches are those of
// the last one.
func TestRandomMembers(t *testing.T) { eachSeed(t, 3) }

func eachSeed(t *testing.T, members int) {
	binary(t, "MILLRACE_TEST_ETCD")
	for seed := *randomSeed; seed < *randomSeed+uint64(*randomRuns); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runRandom(t, seed, members) })
	}
}

// runRandom runs one seed.
func runRandom(t *testing.T, seed uint64, members int) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	d := &draw{Rand: rand.New(rand.NewPCG(seed, 0)), revision: 1, kept: map[int64]bool{}}
	theirs, ours := etcd(t, binary(t, "MILLRACE_TEST_ETCD")), cluster(t, members)
	watches := [2]*watching{newWatching(ctx, t, theirs), newWatching(ctx, t, ours[members-1])}
	var past []string
	for n := range *randomRequests {
		method, r, into := d.request()
		text := fmt.Sprintf("%4d %s %s", n, method, jsonOf(r))
		past = append(past, text)
		if method == pb.KV_Compact_FullMethodName { // a watch that is behind would be cancelled
			catchUp(ctx, t, d, watches)
		}
		var answers [2]string
		for k, s := range []*side{theirs, ours[n%members]} {
			if members > 1 { // what it answers by itself is of now
				s.read(ctx, t)
			}
			answers[k] = s.answer(ctx, d, method, r, proto.Clone(into))
		}
		if answers[0] != answers[1] && endsItself(ctx, d, theirs) {
			t.Logf("seed %d: etcd ends after %d requests\n%s\n millrace: %s", seed, n, text, answers[1])
			return
		}
		if answers[0] != answers[1] {
			t.Fatalf("seed %d\n%s\n etcd:     %s\n millrace: %s", seed, strings.Join(past[max(0, len(past)-40):], "\n"), answers[0], answers[1])
		}
		switch {
		case d.yes(12) && len(watches[0].of) < maxWatches:
			w := d.watch()
			past = append(past, "     watch "+jsonOf(w))
			catchUp(ctx, t, d, watches) // an id is free when its watch was cancelled on both sides
			for k := range watches {
				watches[k].begin(w)
			}
		case d.yes(60): // of one that exists, was cancelled, or never was
			id := d.Int64N(int64(len(watches[0].of)) + 2)
			past = append(past, fmt.Sprint("     cancel watch ", id))
			catchUp(ctx, t, d, watches) // what comes after it is not for the watch
			for k := range watches {
				watches[k].cancel(id)
			}
		}
	}
	catchUp(ctx, t, d, watches)
	for n, one := range watches[0].of {
		if etcd, here := one.log.String(), watches[1].of[n].log.String(); etcd != here {
			t.Errorf("seed %d, watch %s\n%s", seed, jsonOf(one.asked), firstDifference(etcd, here))
		}
	}
}

// read returns the revision of a side after it has caught up with the others.
func (s *side) read(ctx context.Context, t *testing.T) (revision int64) {
	t.Helper()
	r, err := s.cl.Get(ctx, "z", clientv3.WithCountOnly())
	if err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	return r.Header.Revision
}

// answer sends a request and returns the answer as text, without what differs by nature.
func (s *side) answer(ctx context.Context, d *draw, method string, r, into proto.Message) string {
	if err := s.invoke(ctx, method, r, into); err != nil {
		return fmt.Sprintf("%v %s", status.Code(err), s.normal(status.Convert(err).Message()))
	}
	if h := into.(interface{ GetHeader() *pb.ResponseHeader }).GetHeader(); h != nil {
		h.ClusterId, h.MemberId, h.RaftTerm = 0, 0, 0
		d.revision = h.Revision
	}
	switch a := into.(type) {
	case *pb.LeaseTimeToLiveResponse:
		a.TTL = min(a.TTL, 0)                  // seconds pass
		slices.SortFunc(a.Keys, bytes.Compare) // etcd has them in no order
	case *pb.LeaseLeasesResponse:
		slices.SortFunc(a.Leases, func(a, b *pb.LeaseStatus) int { return int(a.ID - b.ID) })
	}
	return jsonOf(into)
}

// invoke sends a request. The parts of a stream are merged.
func (s *side) invoke(ctx context.Context, method string, r, into proto.Message) error {
	if method != pb.KV_RangeStream_FullMethodName {
		return s.conn.Invoke(ctx, method, r, into)
	}
	stream, err := pb.NewKVClient(s.conn).RangeStream(ctx, r.(*pb.RangeRequest))
	for err == nil {
		var part *pb.RangeStreamResponse
		if part, err = stream.Recv(); err == nil {
			proto.Merge(into, part.RangeResponse)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// endsItself reports whether etcd ends by one of its own bugs, now or when all of its keys are read.
//
// A transaction with changes ends it if a later put keeps the value or the lease of a key that the
// transaction has removed. And a compaction at the revision of a transaction that removes a key and puts it
// again takes the put for removed. The next range that finds the key ends the process.
func endsItself(ctx context.Context, d *draw, etcd *side) bool {
	for _, at := range []int64{d.compacted, 0} {
		_, _ = pb.NewKVClient(etcd.conn).Range(ctx, &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}, Revision: at})
	}
	return etcd.endsNow()
}

// catchUp lets all watches take everything. etcd tells no progress while the start of one is ahead.
func catchUp(ctx context.Context, t *testing.T, d *draw, watches [2]*watching) {
	t.Helper()
	for _, w := range watches { // a header may be of before the change
		d.revision = w.side.read(ctx, t)
	}
	for ; d.revision < d.start; d.revision++ {
		for _, w := range watches {
			if _, err := w.side.cl.Put(ctx, "z", "catch up"); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, w := range watches {
		w.catchUp(d.revision)
	}
}

// maxWatches bounds the watches of a seed.
const maxWatches = 40

// firstDifference returns the first lines that differ.
func firstDifference(etcd, here string) string {
	theirs, ours := strings.Split(etcd, "\n"), strings.Split(here, "\n")
	n := 0
	for n < min(len(theirs), len(ours)) && theirs[n] == ours[n] {
		n++
	}
	at := func(of []string) string { return strings.Join(of[min(n, len(of)):min(n+2, len(of))], "\n") }
	return fmt.Sprintf("after %d equal events\n etcd:\n%s\n millrace:\n%s", n, at(theirs), at(ours))
}

func jsonOf(m proto.Message) string {
	b, err := protojson.MarshalOptions{UseEnumNumbers: true}.Marshal(m)
	if err != nil {
		return err.Error()
	}
	return compactJSON(b)
}
