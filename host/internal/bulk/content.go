package bulk

import (
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/snapshot"
)

// SentContent is what a transfer to a member moves. The snapshot of the group is one kind; Sender asks it for
// everything in which the kinds differ. The caller holds the lock of the transfers, except where noted.
type SentContent interface {
	Class() *Class
	// What and Name say for people what is sent: "a snapshot", and which one.
	What() string
	Name() string
	// Hash is that of the manifest. It does not change while the transfer is active.
	Hash() [32]byte
	// Renew chooses what is sent by the next try, and reports whether there is something to send.
	Renew() bool
	// Begins is called when a try begins. release, if it is not nil, is called when the try has ended.
	Begins() (release func())
	// Open opens the content and keeps it from being removed. The caller does not hold the lock: it may read
	// the disk.
	Open() (snapshot.Manifest, *snapshot.Reader, error)
	// NotOpened ends the try, or the transfer, after an error of Open.
	NotOpened(s *Sender, err error)
	// Offer returns the record that tells the receiver what there is.
	Offer(manifestBytes int64) []byte
	// RejectGoingOn says why a transfer must end although its receiver lives, or returns "".
	RejectGoingOn() (cause string)
	// Unreadable is called when the disk does not return the content.
	Unreadable()
	// Sent and Failed return the events of the two ends; nil: there is none.
	Sent(to uint64, bytes int64) event.Event
	Failed(to uint64, bytes int64, cause string) event.Event
}

// ReceivedContent is what a transfer to this member moves. A snapshot of the group is one kind; Receiver
// asks it for everything in which the kinds differ. The caller holds the lock of the transfers, except
// where noted.
type ReceivedContent interface {
	Class() *Class
	// What and Name say for people what is received: "a snapshot", and which one.
	What() string
	Name() string
	// Inspect finds whether the disk has the content, as a whole or in part. Then it has the manifest, too.
	// The caller does not hold the lock.
	Inspect() (m snapshot.Manifest, found bool, err error)
	// RejectManifest says why this member cannot use the content, or returns nil.
	RejectManifest(m *snapshot.Manifest) error
	// Receive begins to receive, or continues. snapshot.ErrPublished means that the disk has the content. The
	// caller does not hold the lock.
	Receive(m snapshot.Manifest) (*snapshot.Receiver, error)
	// RejectWrite says why the disk must not take a few more blocks now, or returns nil. The caller does not
	// hold the lock.
	RejectWrite() error
	// Lasts reports whether the content is needed whatever happens: then only Stop ends the transfer.
	Lasts() bool
	// IsUseless reports whether this member needs the content no more.
	IsUseless() bool
	// Whole is called when the disk has the content, and ends the transfer or passes it on.
	Whole(r *Receiver)
	// Nowhere is called when no source serves it: each was asked in turn, and none has said that it is busy.
	Nowhere(r *Receiver)
	// Released is called when a transfer that has ended early does nothing on the disk any more.
	Released(r *Receiver)
	// Received and Failed return the events of the two ends.
	Received(from uint64, bytes int64) event.Event
	Failed(from uint64, bytes int64, cause string) event.Event
	// Sources are the members that can be asked, in turn.
	Sources() []uint64
}
