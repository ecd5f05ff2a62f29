package wal_test

import (
	"fmt"
	"log"
	"os"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// A log is opened, appended to, flushed, read and closed.
func Example() {
	dir, err := os.MkdirTemp("", "wal")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := wal.Open(wal.Options{Dir: dir, Owner: 1, SegmentBytes: 1 << 20, Scheduler: env.Real().Scheduler})
	if err != nil {
		log.Fatal(err)
	}

	// One Append carries the writes of several groups. Each write is atomic.
	err = l.Append([]wal.Write{
		{Group: 1, HardState: raftpb.HardState{Term: 3, Vote: 1}, Entries: []raftpb.Entry{
			{Index: 1, Term: 3, Data: []byte("set x")},
			{Index: 2, Term: 3, Data: []byte("set y")},
		}},
		{Group: 2, Entries: []raftpb.Entry{{Index: 1, Term: 1, Data: []byte("set z")}}},
	})
	if err != nil {
		log.Fatal(err) // ErrDiskFull, ErrBacklog, ErrInvalidWrite: nothing has changed; others are final
	}
	fmt.Println("appended through", l.Group(1).LastIndex(), "durable through", l.Group(1).DurableIndex())

	// One flush, with one fdatasync, makes all of that durable. Another goroutine may call Wait. l.Sync combines
	// these calls.
	flush, _, err := l.TakeSync()
	if err != nil {
		log.Fatal(err)
	}
	if err := flush.Wait(); err != nil {
		log.Fatal(err)
	}
	if _, err := flush.Complete(); err != nil {
		log.Fatal(err)
	}
	fmt.Println("durable through", l.Group(1).DurableIndex())

	g := l.Group(1)
	entries, err := g.Entries(g.FirstIndex(), g.LastIndex()+1, 1<<20)
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range entries {
		fmt.Printf("%d@%d %s\n", e.Index, e.Term, e.Data)
	}
	if err := l.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// appended through 2 durable through 0
	// durable through 2
	// 1@3 set x
	// 2@3 set y
}
