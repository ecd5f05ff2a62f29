package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/etcdnode"
	pb "github.com/millrace/millrace/raft/raftpb"
)

// member is a node, its storage, and the store that it replicates.
type member struct {
	id      uint64
	node    *etcdnode.Local
	storage *raft.MemoryStorage
	net     *network
	ended   chan struct{}

	mu      sync.Mutex
	values  map[string]string
	applied uint64
	leader  uint64
	reads   map[string]chan uint64 // by context: the index to wait for, 0 if the read was dropped
	next    uint64
	changed chan struct{} // closed and replaced when anything above has changed
}

func startMember(id uint64, net *network, peers []raft.Peer) (*member, error) {
	storage := raft.NewMemoryStorage()
	// Port: etcdnode.StartNode has the signature of etcd-io/raft and panics like it. Start returns the error,
	// and a *Local, which has Done, Err and TransferLeader besides the methods of Node.
	node, err := etcdnode.Start(&raft.Config{
		ID:              id,
		ElectionTick:    10,
		HeartbeatTick:   1,
		Storage:         storage,
		MaxSizePerMsg:   1 << 20,
		MaxInflightMsgs: 256,
		PreVote:         true,
		CheckQuorum:     true,
		// Port: election timeouts are drawn from this seed. Without one they are the same in each life of the node.
		Seed: uint64(time.Now().UnixNano()),
		// Port: no logger means silence. There is no SetLogger.
		Logger: nil,
	}, peers)
	if err != nil {
		return nil, err
	}
	r := &member{
		id: id, node: node, storage: storage, net: net, ended: make(chan struct{}),
		values: map[string]string{}, reads: map[string]chan uint64{}, changed: make(chan struct{}),
	}
	go r.serve()
	return r, nil
}

// serve is the loop that a user of etcd-io/raft knows.
func (r *member) serve() {
	defer close(r.ended)
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			r.node.Tick()
		case message := <-r.net.inboxes[r.id]:
			_ = r.node.Step(context.Background(), message)
		case rd := <-r.node.Ready(): // Port: call Ready() for each receive; the call asks for the next Ready
			if !raft.IsEmptySnap(rd.Snapshot) { // before the entries: both may come in one Ready
				r.must(r.storage.ApplySnapshot(rd.Snapshot))
			}
			// Port: on a disk, hard state and entries are one write. A crash must not leave half of it.
			if !raft.IsEmptyHardState(rd.HardState) {
				r.must(r.storage.SetHardState(rd.HardState))
			}
			r.must(r.storage.Append(rd.Entries))
			r.net.send(rd.Messages)
			r.take(rd)
			r.node.Advance()
		case <-r.node.Done():
			// Port: storage that returns an error stops the node. Local.Err has the cause; etcd-io/raft panics.
			return
		}
	}
}

func (r *member) must(err error) {
	if err != nil {
		panic(err) // MemoryStorage refuses only what this loop would have done wrong
	}
}

// take applies what is committed, and answers reads.
func (r *member) take(rd raft.Ready) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range rd.CommittedEntries {
		switch e.Type {
		case pb.EntryNormal:
			var pair [2]string
			if len(e.Data) > 0 && json.Unmarshal(e.Data, &pair) == nil {
				r.values[pair[0]] = pair[1]
			}
		case pb.EntryConfChange: // the founding peers, here
			var change pb.ConfChange
			r.must(change.Unmarshal(e.Data))
			r.storage.SetConfState(*r.node.ApplyConfChange(change))
		}
		r.applied = e.Index
	}
	for _, read := range rd.ReadStates {
		r.answer(string(read.RequestCtx), read.Index)
	}
	for _, dropped := range rd.DroppedReads { // Port: these reads get no answer. Ask again.
		r.answer(string(dropped), 0)
	}
	if rd.SoftState != nil {
		r.leader = rd.Lead
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *member) answer(read string, index uint64) {
	if waiting := r.reads[read]; waiting != nil {
		waiting <- index
		delete(r.reads, read)
	}
}

// until waits until done holds. done is called with mu held.
func (r *member) until(ctx context.Context, done func() bool) error {
	for {
		r.mu.Lock()
		is, changed := done(), r.changed
		r.mu.Unlock()
		if is {
			return nil
		}
		select {
		case <-changed:
		case <-r.ended:
			return r.node.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// put returns when this member has applied the value. Propose waits while no leader is known.
func (r *member) put(ctx context.Context, key, value string) error {
	data, err := json.Marshal([2]string{key, value})
	if err != nil {
		return err
	}
	for {
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		// Port: Propose may also return ErrProposalDropped: the proposal will surely not commit. nil means only
		// that the proposal is on its way, so a client that sees no result asks again.
		_ = r.node.Propose(attempt, data)
		err := r.until(attempt, func() bool { return r.values[key] == value })
		cancel()
		if err == nil || ctx.Err() != nil || r.node.Err() != nil {
			return err
		}
	}
}

// get is a linearizable read: it asks for a read index, waits until the store has applied it, and looks.
func (r *member) get(ctx context.Context, key string) (string, error) {
	for {
		index, err := r.readIndex(ctx)
		switch {
		case errors.Is(err, raft.ErrReadDropped) || err == nil && index == 0:
			if err := r.until(ctx, func() bool { return r.leader != raft.None }); err != nil {
				return "", err
			}
			continue
		case err != nil:
			return "", err
		}
		var value string
		err = r.until(ctx, func() bool {
			value = r.values[key]
			return r.applied >= index
		})
		return value, err
	}
}

// readIndex returns the index that a read must wait for, or 0 if the read was dropped.
func (r *member) readIndex(ctx context.Context) (uint64, error) {
	answer := make(chan uint64, 1)
	r.mu.Lock()
	r.next++
	read := fmt.Sprintf("%d/%d", r.id, r.next) // Port: never the same context twice, and at most 4 KiB
	r.reads[read] = answer
	r.mu.Unlock()
	// Port: ReadIndex returns an error if the read will not be answered.
	if err := r.node.ReadIndex(ctx, []byte(read)); err != nil {
		r.mu.Lock()
		delete(r.reads, read)
		r.mu.Unlock()
		return 0, err
	}
	attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	select {
	case index := <-answer:
		return index, nil
	case <-attempt.Done():
		return 0, ctx.Err() // a message was lost: ask again, unless ctx has ended
	case <-r.ended:
		return 0, r.node.Err()
	}
}

// moveLeadership asks this member's leader to hand over to another, and returns the new leader.
func (r *member) moveLeadership(ctx context.Context) (uint64, error) {
	for {
		var from uint64
		if err := r.until(ctx, func() bool { from = r.leader; return from != raft.None }); err != nil {
			return raft.None, err
		}
		to := from%3 + 1
		// Port: TransferLeader says why a transfer was not begun; TransferLeadership does not.
		if err := r.node.TransferLeader(ctx, to); err != nil && !errors.Is(err, raft.ErrTransferRefused) {
			return raft.None, err
		}
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		var leader uint64
		err := r.until(attempt, func() bool { leader = r.leader; return leader != raft.None && leader != from })
		cancel()
		if err == nil || ctx.Err() != nil {
			return leader, err
		}
	}
}

func (r *member) stop() {
	r.node.Stop()
	<-r.ended
}
