// Command boltdb measures bbolt for `millrace bench wal`, in the way of hashicorp/raft-boltdb.
//
// It uses bbolt as hashicorp/raft does: StoreLogs with a batch is one transaction (one Update), and
// DeleteRange follows a snapshot. With many groups each group has its own database.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/hashicorp/raft"
	boltdb "github.com/hashicorp/raft-boltdb/v2"

	"github.com/millrace/millrace/cmd/lab/peerlog"
)

func main() {
	library := peerlog.Library{Name: "bbolt", Open: peerlog.LogForEach(open), Fsyncs: fsyncs.Load}
	if err := peerlog.Serve(os.Stdin, os.Stdout, library); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const term = 1

// A transaction of bbolt syncs twice: its pages, and then the page that makes them valid. A third sync, when
// the file has to grow, is not counted.
const fsyncsOfTransaction = 2

var fsyncs atomic.Uint64

type log struct {
	store *boltdb.BoltStore
	logs  []*raft.Log
}

func open(s peerlog.Setup) (peerlog.GroupLog, error) {
	store, err := boltdb.New(boltdb.Options{Path: filepath.Join(s.Dir, "raft.db"), MsgpackUseNewTimeFormat: true})
	if err != nil {
		return nil, err
	}
	return &log{store: store}, nil
}

func (l *log) Append(batch []peerlog.Entry) error {
	l.logs = l.logs[:0]
	for _, e := range batch {
		l.logs = append(l.logs, &raft.Log{Index: e.Index, Term: term, Type: raft.LogCommand, Data: e.Data})
	}
	fsyncs.Add(fsyncsOfTransaction)
	return l.store.StoreLogs(l.logs)
}

func (l *log) Compact(through uint64) error {
	first, err := l.store.FirstIndex()
	if err != nil {
		return err
	}
	fsyncs.Add(fsyncsOfTransaction)
	return l.store.DeleteRange(first, through)
}

func (l *log) Read(visit func(index uint64, data []byte) error) error {
	first, err := l.store.FirstIndex()
	if err != nil {
		return err
	}
	last, err := l.store.LastIndex()
	if err != nil || last == 0 {
		return err
	}
	for i := first; i <= last; i++ {
		var e raft.Log
		if err := l.store.GetLog(i, &e); err != nil {
			return err
		}
		if err := visit(e.Index, e.Data); err != nil {
			return err
		}
	}
	return nil
}

func (l *log) Close() error { return l.store.Close() }
