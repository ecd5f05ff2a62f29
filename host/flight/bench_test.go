package flight

import (
	"testing"
	"time"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// BenchmarkInput is what one input costs to record, without the core.
func BenchmarkInput(b *testing.B) {
	entries := make([]raftpb.Entry, 64)
	for i := range entries {
		entries[i] = raftpb.Entry{Term: 3, Index: uint64(100 + i), Data: make([]byte, 128)}
	}
	messages := []raftpb.Message{{Type: raftpb.MsgApp, From: 1, To: 2, Term: 3, LogTerm: 3, Index: 99, Commit: 98, Entries: entries}}
	rd := raft.Ready{Entries: entries, Messages: append(messages, messages[0], messages[0])}
	for _, c := range []struct {
		name   string
		record func(l *Log)
	}{
		{"ticks", func(l *Log) { l.input(TickN, 3) }},
		{"ticks, published", func(l *Log) {
			l.input(TickN, 3)
			l.publish()
		}},
		{"acknowledgement", func(l *Log) {
			m := raftpb.Message{Type: raftpb.MsgAppResp, From: 1, To: 2, Term: 3, Index: 163}
			l.feed(l.form.appendMessage(l.begin(Stepped), &m, 2))
		}},
		{"append of 64 entries of 128 bytes", func(l *Log) {
			l.feed(l.form.appendMessage(l.begin(Stepped), &messages[0], 2))
		}},
		{"hash of a Ready with 64 entries", func(l *Log) { l.input(Handed, uint64(hashOf(&rd))) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := NewRecorder(64<<20, Lengths, func() time.Duration { return 0 })
			l := r.Open(1)
			l.stretch = r.begin(l)
			for b.Loop() {
				if c.record(l); l.stretch.length > 4<<20 {
					l.stretch = r.begin(l)
				}
			}
		})
	}
}
