// Command etcdraft37 is the child that runs the workloads of ../driver on etcd-io/raft v3.7.0. It is
// ../millrace/main.go for another library: change all three together.
package main

import (
	"fmt"
	"io"
	"log"
	"os"

	"github.com/millrace/millrace/tests/compare/driver"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

func main() {
	if err := driver.Serve(os.Stdin, os.Stdout, newNode); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// node is a RawNode and its storage. The messages that it steps by itself are made once.
type node struct {
	*raft.RawNode
	storage
	opts     driver.Options
	proposal *pb.Message
	ack      *pb.Message
	handed   uint64
}

func newNode(opts driver.Options) (driver.Node[pb.Message], error) {
	n := &node{opts: opts, storage: storage{voters: opts.VoterIDs()}}
	n.proposal = &pb.Message{Type: pb.MsgProp.Enum(), From: &opts.ID}
	for range opts.Batch {
		n.proposal.Entries = append(n.proposal.Entries, &pb.Entry{Data: make([]byte, driver.PayloadBytes)})
	}
	n.ack = &pb.Message{Type: pb.MsgAppResp.Enum(), To: &opts.ID, From: new(uint64), Term: new(uint64(1)), Index: new(uint64)}
	var err error
	n.RawNode, err = raft.NewRawNode(&raft.Config{
		ID:                 opts.ID,
		ElectionTick:       driver.ElectionTicks,
		HeartbeatTick:      1,
		Storage:            &n.storage,
		AsyncStorageWrites: opts.Async,
		MaxSizePerMsg:      driver.MessageBytes,
		MaxInflightMsgs:    driver.InflightMsgs,
		Logger:             &raft.DefaultLogger{Logger: log.New(io.Discard, "", 0)},
	})
	return n, err
}

func (n *node) Propose() error { return n.RawNode.Step(n.proposal) }

func (n *node) Vote(from uint64) error {
	return n.RawNode.Step(&pb.Message{Type: pb.MsgVoteResp.Enum(), To: &n.opts.ID, From: &from, Term: new(uint64(1))})
}

func (n *node) Acknowledge(from uint64) error {
	*n.ack.From, *n.ack.Index = from, n.ring.Last()
	return n.RawNode.Step(n.ack)
}

func (n *node) Step(m *pb.Message) error { return n.RawNode.Step(m) }

func (n *node) Work(wire *driver.Wire[pb.Message]) error {
	for n.HasReady() {
		rd := n.Ready()
		if len(rd.Entries) > 0 {
			n.ring.Save(rd.Entries[0].GetIndex(), rd.Entries)
		}
		if err := n.apply(rd.CommittedEntries); err != nil {
			return err
		}
		for i := range rd.Messages {
			if err := n.deliver(rd.Messages[i], wire); err != nil {
				return err
			}
		}
		if !n.opts.Async {
			n.Advance(rd)
		}
	}
	return nil
}

// deliver passes a message on. The work of a message to a storage worker is done already, so deliver answers
// it.
func (n *node) deliver(m *pb.Message, wire *driver.Wire[pb.Message]) error {
	switch m.GetTo() {
	case n.opts.ID:
		return n.RawNode.Step(m)
	case raft.LocalAppendThread, raft.LocalApplyThread:
		for i := range m.Responses {
			if err := n.deliver(m.Responses[i], wire); err != nil {
				return err
			}
		}
	default:
		if wire != nil {
			wire.Send(m.GetTo(), m)
		}
	}
	return nil
}

func (n *node) apply(entries []*pb.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	if entries[0].GetIndex() != n.handed+1 {
		return fmt.Errorf("handed entry %d to apply after %d", entries[0].GetIndex(), n.handed)
	}
	n.handed = entries[len(entries)-1].GetIndex()
	return nil
}

func (n *node) Cursors() driver.Cursors {
	st := n.BasicStatus()
	return driver.Cursors{Last: n.ring.Last(), Committed: st.HardState.GetCommit(), Applied: st.Applied, Handed: n.handed}
}

// storage is raft.Storage over a driver.Ring.
type storage struct {
	ring   driver.Ring[*pb.Entry]
	voters []uint64
}

func (s *storage) InitialState() (*pb.HardState, *pb.ConfState, error) {
	return &pb.HardState{}, &pb.ConfState{Voters: s.voters}, nil
}

func (s *storage) Entries(lo, hi, _ uint64) ([]*pb.Entry, error) { return s.ring.Slice(lo, hi), nil }
func (s *storage) Term(i uint64) (uint64, error)                 { return s.ring.At(i).GetTerm(), nil }
func (s *storage) LastIndex() (uint64, error)                    { return s.ring.Last(), nil }
func (s *storage) FirstIndex() (uint64, error)                   { return 1, nil }
func (s *storage) Snapshot() (*pb.Snapshot, error)               { return &pb.Snapshot{}, nil }
