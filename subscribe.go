package millrace

import (
	"context"
	"iter"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/statemachine"
)

// Publication is what the state machine has published with a command (Command.Publish).
//
//	At   Bookmark // its place: subscribe after it for the next one
//	Data []byte   // what the machine has published; do not change it
type Publication = statemachine.Publication

// Bookmark is the place of a publication, the same on every member and after a restart. Bookmarks ascend, and
// the zero Bookmark is before all publications. String and ParseBookmark make it a text and back, such as the
// id of a server-sent event.
//
//	Index  uint64 // the entry of the log
//	Pos    uint32 // the command in that entry
//	Number uint32 // the publication of that command, from 0
//	func Compare(c Bookmark) int // -1, 0 or 1, in the order of the log
//	func String() string         // three numbers with dots, such as 17.0.2
type Bookmark = statemachine.Bookmark

// ForgottenError says that what a subscriber lacks is not kept on this node any more. errors.As finds it.
//
//	After Bookmark // what the subscriber has
//	First Bookmark // subscribe after this one: all behind it is here
//	func Error() string // both in a sentence
//	func Unwrap() error // always ErrForgotten
type ForgottenError = statemachine.ForgottenError

// ErrForgotten is what errors.Is finds in a ForgottenError.
var ErrForgotten = statemachine.ErrForgotten

// BookmarkAfter returns the bookmark behind all publications of entries through index. The state that a read
// has seen (ReadAt.Index) includes what they tell.
func BookmarkAfter(index uint64) Bookmark { return statemachine.EndOf(index) }

// ParseBookmark reads what Bookmark.String returns.
func ParseBookmark(text string) (Bookmark, error) { return statemachine.ParseBookmark(text) }

// Subscribe yields what the state machine publishes behind a bookmark: in the order of the log, each once, as
// soon as it is applied on this node. Give it the bookmark of the last publication that the subscriber has,
// from whichever node. The zero Bookmark yields all from the beginning, LastPublication what comes from now
// on, and BookmarkAfter what comes behind a read.
//
// A node keeps the latest publications (Config.PublicationBytes), also across restarts and snapshots. With a
// Durable machine it has none after a start, because what is on the disk is not applied again. A subscriber
// that is slower than they come, or has slept, falls behind and holds nothing. If what it lacks is not kept
// any more, the loop ends with a ForgottenError: read the state, and subscribe behind the read.
//
// The last pair of the loop has the error that ended it: that of ctx, ErrStopped, or a ForgottenError. All
// subscribers share the Data of a publication, so it must not be changed.
//
//	for p, err := range node.Subscribe(ctx, seen) {
//		if err != nil {
//			return err
//		}
//		seen = p.At
//		show(p.Data)
//	}
func (n *Node[C, R]) Subscribe(ctx context.Context, after Bookmark) iter.Seq2[Publication, error] {
	return func(yield func(Publication, error) bool) {
		s, err := n.OpenSubscription(after)
		if err != nil {
			yield(Publication{}, err)
			return
		}
		defer s.Close()
		for {
			all, err := s.Next(ctx)
			if err != nil {
				yield(Publication{}, err)
				return
			}
			for _, p := range all {
				if !yield(p, nil) {
					return
				}
			}
		}
	}
}

// Subscription is a subscriber that takes publications batch by batch, for programs with many: Subscribe
// costs each of them a loop.
//
//	func Poll() ([]Publication, error)                    // what follows, or nothing; never waits
//	func Next(ctx context.Context) ([]Publication, error) // waits for what follows, and returns that
//	func Close()                                          // ends it; any goroutine may call it
type Subscription = host.Subscription

// OpenSubscription begins what Subscribe loops over. Close must be called. The state machine must not wait
// for publications: it is refused (ErrReentrant).
func (n *Node[C, R]) OpenSubscription(after Bookmark) (*Subscription, error) {
	if err := n.rejectReentry("Subscribe"); err != nil {
		return nil, err
	}
	return n.group.Subscribe(after)
}

// LastPublication returns the bookmark of the latest publication on this node. Subscribe after it yields what
// comes from now on.
func (n *Node[C, R]) LastPublication() Bookmark { return n.group.LastPublication() }
