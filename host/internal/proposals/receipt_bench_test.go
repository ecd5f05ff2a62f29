package proposals

import (
	"strconv"
	"testing"
	"time"

	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
)

// BenchmarkReceipts measures what the times of receipts cost a command, for batches of several sizes: each
// step reads the clock once, and writes the time to each command of the batch. Nothing else of a command's
// way is in it.
func BenchmarkReceipts(b *testing.B) {
	began := time.Now()
	clock := func() time.Duration { return time.Since(began) }
	for _, size := range []int{1, 16, 256} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			calls, commands := make([]Call, size), make([]statemachine.Command, size)
			q := NewQueue(Settings{Clock: clock})
			var last outcome.Receipt
			for n := 0; n < b.N; n += size {
				queued := clock() // the door
				for i := range calls {
					calls[i].queued = queued
				}
				appended := clock() // a turn
				for i := range calls {
					calls[i].appended = appended
				}
				replicated := clock()
				for i := range calls {
					calls[i].replicated = replicated
				}
				q.atCommit(2, func() {})
				for i := range calls { // the commit, and the result
					o := Settlement{Receipt: outcome.Receipt{Committed: q.at, By: q.by}}
					o.Receipt.Queued, o.Receipt.Appended, o.Receipt.Replicated = calls[i].queued, calls[i].appended, calls[i].replicated
					last = o.Receipt
				}
				applied := clock()
				for i := range calls {
					last = calls[i].appliedReceipt(&commands[i], applied)
				}
			}
			if last.Replicated == 0 || last.Applied < last.Queued {
				b.Fatalf("%+v", last)
			}
		})
	}
}
