package host

import (
	"testing"

	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// watchedAppends is a log that tells when it is written.
type watchedAppends struct {
	Log
	before func(writes []wal.Write)
}

func (l watchedAppends) Append(writes []wal.Write) error {
	l.before(writes)
	return l.Log.Append(writes)
}

// In each pipeline except basic the leader's appends are with the transport before the leader writes its own
// disk (thesis §10.2.1).
func TestWhatIsSentBeforeTheDiskIsWritten(t *testing.T) {
	for _, p := range pipeline.All {
		t.Run(p.Name(), func(t *testing.T) {
			var l *testHost
			sent := -1 // appends of the command that were sent when it was written
			watched := WithLog(func(c LogConfig) (Log, error) {
				log, err := OpenWAL(c)
				return watchedAppends{log, func(writes []wal.Write) {
					for _, w := range writes {
						if n := len(w.Entries); n > 0 && w.Entries[n-1].Index == begun+1 {
							sent = len(l.out.take(raftpb.MsgApp))
						}
					}
				}}, err
			})
			l = openTestHost(t, 3, WithPipeline(p), watched)
			l.lead()
			l.submit("x")
			l.manual.runIdle()
			want := 2
			if p == (pipeline.Basic{}) {
				want = 0
			}
			if sent != want {
				t.Errorf("%d appends were sent before the write, want %d", sent, want)
			}
		})
	}
}
