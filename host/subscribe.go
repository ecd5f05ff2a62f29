package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/host/internal/feed"
	"github.com/millrace/millrace/host/internal/snapshots"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/snapshot"
)

// Subscription yields what the machine of a group publishes (statemachine.Command.Published), in the order of
// the log and each once, as far as it is applied on this host. It holds a bookmark and about 200 bytes. One
// goroutine uses it; Close may be called by any.
type Subscription struct {
	group  *Group
	reader *feed.Reader
}

// ErrNoPublications: the group has a Machine, and not a CommandMachine, which publishes.
var ErrNoPublications = errors.New("millrace: the machine of the group publishes nothing; open the group with host.Commands")

// MaxPublicationBytes bounds GroupConfig.PublicationBytes.
const MaxPublicationBytes = feed.MaxBytes

// Subscribe begins behind a bookmark: that of the last publication that the subscriber has, on whichever
// member. The zero bookmark is before all publications, and LastPublication behind all that are here.
func (g *Group) Subscribe(after statemachine.Bookmark) (*Subscription, error) {
	if g.machine.feed == nil {
		return nil, ErrNoPublications
	}
	return &Subscription{g, g.machine.feed.Subscribe(after)}, nil
}

// LastPublication returns the bookmark of the latest publication on this host.
func (g *Group) LastPublication() statemachine.Bookmark {
	if g.machine.feed == nil {
		return statemachine.Bookmark{}
	}
	return g.machine.feed.Last()
}

// Poll returns what follows, at most the publications of one batch of the machine, or nothing. It never
// waits. Its errors are those of Next.
func (s *Subscription) Poll() ([]statemachine.Publication, error) {
	all, _, err := s.poll()
	return all, err
}

func (s *Subscription) poll() (all []statemachine.Publication, changed <-chan struct{}, err error) {
	all, changed, err = s.reader.Poll()
	if len(all) == 0 && err == nil && s.group.Err() != nil {
		err = outcome.WithCause(outcome.ErrStopped, s.group.Err())
	}
	return all, changed, err
}

// Next waits until something follows, and returns it: publications of one batch of the machine, at least one.
// All subscribers share them, so they must not be changed. A statemachine.ForgottenError says that what
// follows is not kept any more, and from where it is. ErrStopped says that the group has ended here; another
// member has the rest. If ctx ends first, its cause is wrapped.
func (s *Subscription) Next(ctx context.Context) ([]statemachine.Publication, error) {
	if all, _, err := s.poll(); len(all) > 0 || err != nil {
		return all, err
	}
	defer s.reader.Await()()
	for {
		all, changed, err := s.poll()
		if len(all) > 0 || err != nil {
			return all, err
		}
		select {
		case <-changed:
		case <-s.group.life.ended:
		case <-ctx.Done():
			return nil, fmt.Errorf("millrace: the subscription has ended: %w", context.Cause(ctx))
		}
	}
}

// Close ends the subscription. It is counted until then (PublicationMetrics.Subscribers).
func (s *Subscription) Close() { s.reader.Close() }

// openFeed makes the feed of a group that is being opened.
func (g *Group) openFeed() *feed.Feed {
	var f *feed.Feed
	f = feed.New(g.config.PublicationBytes, func() { g.host.reports.subscribers.Wake(f) })
	g.machine.feed = f
	return f
}

// readPublications reads those of a snapshot, whose machine has the commands through last. A machine on disk
// may have more than the index of its snapshot: it holds them from an earlier life, and publishes none of
// them.
func readPublications(p *snapshots.Published, r *snapshot.Reader, last uint64) (c feed.Content, err error) {
	var form []byte
	if _, has := p.Manifest.Find(snapshot.KindHost, snapshots.PublishedStream); has > 0 {
		if form, err = snapshots.ReadForm(p, r, snapshots.PublishedStream, feed.MaxForm); err != nil {
			return c, fmt.Errorf("its publications: %w", err)
		}
	}
	return feed.Read(form, max(p.ID.Index, last))
}
