package bulk

import (
	"fmt"
	"slices"
)

// Whom a receiver asks. Any member may have the content, so one that is silent, has it not, cannot read it,
// is busy or lies is passed over, and the next one is asked. When all were, in one round in which nothing
// right came, a fetch says so (ReceivedContent.Nowhere), and the next round begins at the next repeat:
// repeats become rarer, so a content that is nowhere costs little.

// lied notes that a sender has sent what is not in the content, and asks another member.
func (r *Receiver) lied(from uint64, what string) {
	r.all.warn(topic{r.group.ID(), from, "lie"}, "a part of "+r.content.What()+" that was sent is wrong, and is refused", "content", r.content.Name(), "from", from, "cause", what)
	if r.lies++; r.lies >= maxLies {
		r.Abort(fmt.Sprintf("%d parts of it were wrong, the last one because %s", r.lies, what))
		return
	}
	r.passOver(from)
}

// next returns the member after the one that is asked.
func (r *Receiver) next() uint64 {
	others := r.content.Sources()
	if len(others) == 0 {
		return r.from // a new member that knows no other one yet
	}
	i := slices.Index(others, r.from)
	return others[(i+1)%len(others)]
}

// passOver notes that a member does not serve the content; if it is the one that is asked, the next one is
// from then on. It reports whether that was the last one: each source has refused since something was right.
func (r *Receiver) passOver(member uint64) (all bool) {
	if !slices.Contains(r.refused, member) {
		r.refused = append(r.refused, member)
	}
	if member == r.from {
		r.from, r.isAsked = r.next(), false
	}
	for _, source := range r.content.Sources() {
		if !slices.Contains(r.refused, source) {
			return false
		}
	}
	if !r.isBusy {
		r.content.Nowhere(r)
	}
	r.refused, r.isBusy = nil, false
	return true
}

// sourceFails is called when the member that is asked cannot serve. The next one is asked at once, unless all
// were: then it is at the next repeat.
func (r *Receiver) sourceFails(why Why) {
	if !r.isAsked {
		return // it was said before, or comes late
	}
	r.isBusy = r.isBusy || why == SenderBusy
	if all := r.passOver(r.from); !all {
		r.ask(true, r.window.repeat())
	}
}

// startOver gives the slot up. The transfer begins again when it gets one, after a while, which becomes
// longer as long as nothing is written.
func (r *Receiver) startOver() {
	r.enter(receivingWaits)
	r.laterAt = r.all.at + r.all.settings.Election<<min(r.restarts, maxSilentBackoff)
	r.restarts++
	r.lies, r.spoilt, r.pausedAt, r.isAsked = 0, 0, 0, false
	r.manifest, r.hasBlock = nil, nil
	r.reopens = r.receiver != nil
	r.enqueue() // a lane closes the receiver
}

// beginAgain begins a transfer again that has started over, if its time has come and there is a slot.
func (r *Receiver) beginAgain() {
	if r.all.at < r.laterAt || !r.class().GiveReceivingSlot() {
		return
	}
	r.enter(receivingBegins)
	r.pace = pace{at: r.all.at, bytes: r.received}
	r.enqueue()
}
