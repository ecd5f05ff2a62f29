package bulk

import (
	"fmt"

	"github.com/millrace/millrace/snapshot"
)

// What a content, and who begins a transfer, may do to one. All of it is called in Do, or by a method of the
// content that is called with the lock held.

// Group returns the member that receives.
func (r *Receiver) Group() Group { return r.group }

// Content returns what is received.
func (r *Receiver) Content() ReceivedContent { return r.content }

// Hash returns that of the manifest.
func (r *Receiver) Hash() [32]byte { return r.hash }

// Now returns the tick.
func (r *Receiver) Now() int64 { return r.all.at }

// Manifest returns what is received, when the manifest is here.
func (r *Receiver) Manifest() snapshot.Manifest { return r.decoded }

// Offered notes that a member has offered what is received already: it is asked from now on.
func (r *Receiver) Offered(from uint64) {
	r.from = from
	r.sayAlive()
}

// IsHeld reports whether the transfer may not be replaced now: a lane works on it, or it is being installed.
func (r *Receiver) IsHeld() bool { return r.running || r.stage == receivingInstalls }

// IsAlive reports whether something that was asked for has arrived lately.
func (r *Receiver) IsAlive() bool { return r.all.at-r.heardAt < r.all.idleTicks()/2 }

// SayEnd tells the sender why the transfer ends.
func (r *Receiver) SayEnd(why Why) { r.all.SayEnd(r.group, r.from, r.hash, why) }

// Install keeps the transfer until the content is in use: it gives its slot up.
func (r *Receiver) Install() { r.enter(receivingInstalls) }

// Yield lets another transfer have the slot, if one waits.
func (r *Receiver) Yield() { r.pace.slow = true }

// Tell calls f when the lock is released.
func (r *Receiver) Tell(f func()) { r.all.afterUnlock = append(r.all.afterUnlock, f) }

// Lacks returns how many bytes the disk lacks. known is false before the receiver has looked.
func (r *Receiver) Lacks() (bytes int64, known bool) {
	if r.receiver == nil {
		return 0, false
	}
	have, want := r.receiver.Progress()
	return want - have, true
}

// String says for people how far the transfer is.
func (r *Receiver) String() string {
	return fmt.Sprintf("receives %s in stage %d from %d", r.content.Name(), r.stage, r.from)
}

// IsMoving reports whether blocks are asked for.
func (r *Receiver) IsMoving() bool { return r.stage == receivingBlocks }
