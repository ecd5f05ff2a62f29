package driver

import "math/rand/v2"

// Wire carries messages between the nodes of a cluster in one goroutine. It keeps pointers to the messages,
// in two queues that are used in turn. Its random source is seeded: the n-th message of each library meets
// the same fate.
type Wire[M any] struct {
	queue, spare []parcel[M]
	random       *rand.PCG
	lossPercent  uint64
	delivered    int64
}

type parcel[M any] struct {
	to uint64
	m  *M
}

func newWire[M any](lossPercent int) *Wire[M] {
	return &Wire[M]{random: rand.NewPCG(4711, 4711), lossPercent: uint64(lossPercent)}
}

// Send puts a message on the wire, which keeps the pointer until it is delivered.
func (w *Wire[M]) Send(to uint64, m *M) { w.queue = append(w.queue, parcel[M]{to, m}) }

// deliver steps every message that is on the wire now. With losses, as many messages as are lost overtake the
// one before them.
func (w *Wire[M]) deliver(nodes []Node[M]) error {
	batch := w.queue
	w.queue = w.spare[:0]
	for i := range batch {
		if i+1 < len(batch) && w.strikes() {
			batch[i], batch[i+1] = batch[i+1], batch[i]
		}
		if w.strikes() {
			continue
		}
		w.delivered++
		if err := nodes[batch[i].to-1].Step(batch[i].m); err != nil {
			return err
		}
	}
	w.spare = batch
	return nil
}

func (w *Wire[M]) strikes() bool { return w.lossPercent > 0 && w.random.Uint64()%100 < w.lossPercent }
