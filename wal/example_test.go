package wal_test

import (
	"fmt"
	"log"
	"os"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// Two groups share a log. Append makes their writes readable, and one Sync makes both durable. After a
// restart the log shows what each group has, the hard state included.
func Example() {
	dir, err := os.MkdirTemp("", "wal-example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	options := wal.Options{Dir: dir, Scheduler: env.Real().Scheduler, SegmentBytes: 1 << 20}

	l, err := wal.Open(options)
	if err != nil {
		log.Fatal(err)
	}
	err = l.Append([]wal.Write{
		{Group: 1, HardState: raftpb.HardState{Term: 1, Vote: 3}, Entries: []raftpb.Entry{
			{Index: 1, Term: 1, Data: []byte("x=1")},
			{Index: 2, Term: 1, Data: []byte("x=2")},
		}},
		{Group: 2, Entries: []raftpb.Entry{{Index: 1, Term: 4, Data: []byte("y=1")}}},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := l.Sync(); err != nil { // only now may a member answer for what it has written
		log.Fatal(err)
	}
	if err := l.Close(); err != nil {
		log.Fatal(err)
	}

	if l, err = wal.Open(options); err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	for _, id := range []uint64{1, 2} {
		group := l.Group(id)
		entries, err := group.Entries(group.FirstIndex(), group.LastIndex()+1, 1<<20)
		if err != nil {
			log.Fatal(err)
		}
		for _, e := range entries {
			fmt.Printf("group %d, entry %d of term %d: %s\n", id, e.Index, e.Term, e.Data)
		}
	}
	fmt.Println("group 1 has voted for member", l.Group(1).HardState().Vote)
	// Output:
	// group 1, entry 1 of term 1: x=1
	// group 1, entry 2 of term 1: x=2
	// group 2, entry 1 of term 4: y=1
	// group 1 has voted for member 3
}
