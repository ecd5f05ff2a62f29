package main

import (
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// pipeline carries a Ready out, on the node's goroutine.
type pipeline interface {
	handle(raft.Ready) error
}

// pipelines make the pipeline of a node.
var pipelines = map[string]func(*node) pipeline{
	"basic":    func(n *node) pipeline { return basic{n} },
	"parallel": func(n *node) pipeline { return parallel{n} },
	"async":    newAsync,
}

// basic does one thing after the other.
type basic struct{ *node }

func (p basic) handle(rd raft.Ready) error {
	if err := p.save(rd.HardState, rd.Entries); err != nil {
		return err
	}
	if err := p.remember(rd.HardState, rd.Entries); err != nil {
		return err
	}
	for _, m := range rd.Messages {
		p.send(m)
	}
	p.apply(rd.CommittedEntries)
	p.answer(rd.CommittedEntries)
	p.rn.Advance(rd)
	return nil
}

// parallel sends appends before it saves, and answers before it applies.
type parallel struct{ *node }

func (p parallel) handle(rd raft.Ready) error {
	p.answer(rd.CommittedEntries)
	for _, m := range rd.Messages {
		if m.GetType() == pb.MsgApp {
			p.send(m)
		}
	}
	if err := p.save(rd.HardState, rd.Entries); err != nil {
		return err
	}
	if err := p.remember(rd.HardState, rd.Entries); err != nil {
		return err
	}
	for _, m := range rd.Messages {
		if m.GetType() != pb.MsgApp {
			p.send(m)
		}
	}
	p.apply(rd.CommittedEntries)
	p.rn.Advance(rd)
	return nil
}

// async leaves saving and applying to a worker each.
type async struct {
	*node
	toAppend, toApply *queue
}

func newAsync(n *node) pipeline {
	p := &async{node: n, toAppend: newQueue(), toApply: newQueue()}
	n.c.spawn(func() error { return p.toAppend.work(n.c.quit, p.appendAll) })
	n.c.spawn(func() error { return p.toApply.work(n.c.quit, p.applyAll) })
	return p
}

func (p *async) handle(rd raft.Ready) error {
	for _, m := range rd.Messages {
		switch m.GetTo() {
		case raft.LocalAppendThread:
			p.toAppend.push(m)
		case raft.LocalApplyThread:
			p.answer(m.GetEntries())
			p.toApply.push(m)
		default:
			p.send(m)
		}
	}
	return nil
}

// appendAll makes all that waits durable at once.
func (p *async) appendAll(waiting []*pb.Message) error {
	var last *pb.HardState
	var entries []*pb.Entry
	for _, m := range waiting {
		if st := hardStateOf(m); st != nil {
			last = st
		}
		entries = append(entries, m.GetEntries()...)
	}
	if err := p.save(last, entries); err != nil {
		return err
	}
	for _, m := range waiting {
		if err := p.remember(hardStateOf(m), m.GetEntries()); err != nil {
			return err
		}
	}
	p.respond(waiting)
	return nil
}

// hardStateOf returns the hard state that a MsgStorageAppend carries, or nil.
func hardStateOf(m *pb.Message) *pb.HardState {
	st := &pb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}
	if raft.IsEmptyHardState(st) {
		return nil
	}
	return st
}

func (p *async) applyAll(waiting []*pb.Message) error {
	for _, m := range waiting {
		p.apply(m.GetEntries())
	}
	p.respond(waiting)
	return nil
}

func (p *async) respond(done []*pb.Message) {
	for _, m := range done {
		for _, response := range m.GetResponses() {
			p.send(response)
		}
	}
}
