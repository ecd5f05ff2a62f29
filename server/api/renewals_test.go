package api

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// TestKeepAlivesInOrder completes renewals in any order. The sender is woken for those that are next. It
// takes them in the order of their requests, each with its own TTL, and the end behind the last.
func TestKeepAlivesInOrder(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		k := &keepAlives{changed: make(chan struct{}, 1), space: make(chan struct{}, 1)}
		all := make([]*renewal, 1+rng.IntN(40))
		for n := range all {
			all[n] = &renewal{stream: k, response: &pb.LeaseKeepAliveResponse{ID: int64(n)}}
			if err := k.add(t.Context(), all[n]); err != nil {
				t.Fatal(err)
			}
		}
		order := rng.Perm(len(all))
		endAt, next, over := rng.IntN(len(all)+1), 0, false
		step := func(what func()) {
			what()
			select {
			case <-k.changed:
			default:
				return // the sender sleeps
			}
			done, err := k.take()
			for _, r := range done {
				if r.response.ID != int64(next) || r.response.TTL != r.response.ID+100 {
					t.Fatalf("seed %d: the answer %d is of request %d, with TTL %d", seed, next, r.response.ID, r.response.TTL)
				}
				next++
			}
			if over = errors.Is(err, io.EOF); over && next != len(all) {
				t.Fatalf("seed %d: the end comes behind %d answers, want %d", seed, next, len(all))
			}
		}
		for at, n := range order {
			if at == endAt {
				step(func() { k.end(io.EOF) })
			}
			step(func() { all[n].complete(int64(n)+100, nil) })
		}
		if endAt == len(all) {
			step(func() { k.end(io.EOF) })
		}
		if !over {
			t.Fatalf("seed %d: no end behind %d answers of %d", seed, next, len(all))
		}
	}
}

// TestKeepAlivesAreBounded: a stream whose answers are owed takes no more renewals than one command has.
func TestKeepAlivesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		k := &keepAlives{changed: make(chan struct{}, 1), space: make(chan struct{}, 1)}
		added := make(chan error, 1)
		var all []*renewal
		add := func() {
			r := &renewal{stream: k, response: &pb.LeaseKeepAliveResponse{}}
			all = append(all, r)
			added <- k.add(ctx, r)
		}
		for range maxGathered {
			add()
			<-added
		}
		go add()
		synctest.Wait()
		if len(added) != 0 {
			t.Fatalf("a stream owes %d answers, and %d are the bound", len(all), maxGathered)
		}
		all[0].complete(1, nil)
		if done, err := k.take(); len(done) != 1 || err != nil {
			t.Fatalf("taken: %d, %v", len(done), err)
		}
		if err := <-added; err != nil {
			t.Fatal(err)
		}
		go add()
		synctest.Wait()
		cancel()
		if err := <-added; !errors.Is(err, canceled) {
			t.Fatalf("a renewal of a stream that has ended: %v", err)
		}
	})
}
