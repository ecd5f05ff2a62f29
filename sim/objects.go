package sim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"path"
	"slices"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/sim/property"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// Large objects. In a third of the seeds with calls the groups have them: clients upload objects on any host,
// in pieces, while everything goes wrong, and commands name those that a quorum holds, others too early, and
// others when they may have expired. The state machine keeps and releases them, as the text of the command
// says.
//
//	promise                                                    checked by
//	an upload that has ended well is on a quorum of disks      simUpload.check
//	a command gets what it names, every byte                   replica.useObjects
//	all members refuse the same commands, and keep the same    checkObjects, ghost.apply
//	in the end every member has every object that may be named haveAllObjects, checkObjects
//	nothing else is on a disk then                             haveAllObjects
//	what no command keeps goes, whichever member leads          haveAllObjects
type objects struct {
	w    *world
	rng  *rand.Rand
	pace time.Duration
	life time.Duration
	// uploads are all that were begun, by id; named are the sets that commands name, by the text of these.
	uploads map[object.ID]*simUpload
	begun   []*simUpload // the same, in order
	ready   []*simUpload // that have ended well
	named   map[string][]object.ID
}

// simUpload is an upload, and what the object has.
type simUpload struct {
	replica *replica
	upload  *host.Upload
	id      object.ID
	group   uint64
	content []byte
	since   time.Duration
	sent    bool
}

// drawObjects draws whether the groups of a run have objects.
func (w *world) drawObjects() {
	rng := splitSeed(w.options.Seed, 31)
	if w.calls == nil || w.options.small && !w.options.objects || rng.IntN(3) > 0 && !w.options.objects {
		return
	}
	if !w.pipeline.AsyncStorageWrites() || w.mode.Unsafe() || w.mode.Kind == wal.KindMemory {
		return
	}
	w.objects = &objects{
		w: w, rng: rng, pace: pick(rng, 20*time.Millisecond, 80*time.Millisecond, 300*time.Millisecond),
		life:    pick(rng, time.Second, 3*time.Second, time.Minute),
		uploads: map[object.ID]*simUpload{}, named: map[string][]object.ID{},
	}
	w.calls.Objects = &statemachine.ObjectOptions{ReserveBytes: 1}
}

func (w *world) startObjects() {
	if w.objects != nil {
		w.objects.schedule()
	}
}

// objectLife is how long an object that no command keeps is there, at most.
func (w *world) objectLife() time.Duration {
	if w.objects == nil {
		return 0
	}
	return 2 * w.objects.life
}

func (w *world) describeObjects() (text string) {
	for r := range w.members() {
		text += fmt.Sprintf("%s: %d uploads, %+v; ", r.name, len(r.uploads), r.group.Metrics().Objects)
	}
	return text
}

func (o *objects) schedule() {
	o.w.plan(between(o.rng, 0, 2*o.pace), "an upload begins", nil, func() {
		if o.w.nemesis.stopped {
			return
		}
		o.begin()
		o.schedule()
	})
}

// begin begins an upload on any host.
func (o *objects) begin() {
	l := o.w.hosts[o.rng.IntN(len(o.w.hosts))].alive
	if l == nil || l.process == nil {
		return
	}
	r := pick(o.rng, l.replicas...)
	if r.group == nil || r.closing || !r.ghost.has(l.host.id) || len(r.uploads) >= 4 {
		return
	}
	life := min(max(time.Duration(o.rng.Int64N(int64(2*o.life))), object.MinLife), object.MaxLife)
	upload, err := r.group.StartUpload(host.UploadOptions{Life: life})
	if err != nil {
		o.excuse(r, "an upload does not begin", err)
		return
	}
	u := &simUpload{replica: r, upload: upload, id: upload.ID(), group: r.id, since: o.w.now}
	u.content = make([]byte, pick(o.rng, 0, 1, 5000, 65536, 70_000, 300_000))
	rand.NewChaCha8([32]byte(bytes.Repeat(u.id[:], 2))).Read(u.content)
	o.uploads[u.id], o.begun = u, append(o.begun, u)
	r.uploads = append(r.uploads, u)
	o.w.count(Uploads)
	o.write(u, 0)
}

// write writes a piece, and later the next one.
func (o *objects) write(u *simUpload, from int) {
	r := u.replica
	o.w.plan(between(o.rng, 0, 5*time.Millisecond), r.name+": an upload is written", r.life, func() {
		if r.group == nil || r.group.Err() != nil || r.closing {
			return
		}
		n := min(len(u.content)-from, 1+o.rng.IntN(200_000))
		_, err := u.upload.Write(u.content[from : from+n])
		switch {
		case err == nil && from+n < len(u.content):
			o.write(u, from+n)
			return
		case err == nil && o.rng.IntN(12) == 0:
			err = errGone
		case err == nil:
			u.sent = true
			if err = u.upload.Finish(); err == nil {
				return
			}
		}
		o.w.count(UploadsOver)
		o.excuse(r, "an upload is not written", errors.Join(err, u.upload.Abort()))
	})
}

// excuse demands that an error is one that a client may meet.
func (o *objects) excuse(r *replica, what string, err error) {
	l := r.life
	if l.dead || l.sawError || l.sawFull || l.sawRot || l.sawShort || l.sawMoved || l.host.power.after > 0 || r.group.Err() != nil ||
		errors.Is(err, errGone) || isHalted(err) || errors.Is(err, outcome.ErrStopped) || errors.Is(err, outcome.ErrOverloaded) || errors.Is(err, outcome.ErrObjectSpace) || errors.Is(err, crashfs.ErrCrashed) {
		return
	}
	o.w.breaks(property.Objects, "%s: %s, although its disk works: %v", r.name, what, err)
}

// poll looks at the uploads of a replica.
func (o *objects) poll(r *replica) {
	if o == nil {
		return
	}
	r.uploads = slices.DeleteFunc(r.uploads, func(u *simUpload) bool {
		set, done, err := u.upload.Poll()
		switch {
		case !done:
			return false
		case err == nil:
			u.check(o, &set)
		case !u.sent, outcome.MayHaveCommitted(err), isRefusal(err), errors.Is(err, object.ErrUnknown), errors.Is(err, object.ErrRefused):
			o.w.count(UploadsOver)
		default:
			o.excuse(r, "an upload has failed", err)
		}
		return true
	})
}

// check: an object that a client was told is held is whole on the disks of its holders, also after the worst
// crash, and they are a quorum.
func (u *simUpload) check(o *objects, set *object.Set) {
	w := o.w
	w.count(UploadsHeld)
	o.ready = append(o.ready, u)
	if set.Bytes != int64(len(u.content)) || set.ID != u.id || set.Held == 0 {
		w.breaks(property.Objects, "%s uploaded %d bytes as %v, and was told %+v", u.replica.name, len(u.content), u.id, set)
	}
	if w.churn == nil && 2*len(set.Holders) <= len(w.hosts) {
		w.breaks(property.Objects, "object %v is said to be held, and its holders are %v", u.id, set.Holders)
	}
	isThere := slices.ContainsFunc(u.replica.group.Objects(), func(s object.Set) bool { return s.ID == u.id })
	if !isThere || u.replica.group.Status().Applied < w.appliedByAny(u.group) {
		return // it has gone by now, or may have
	}
	loss, _ := w.lossToSurvive()
	for _, h := range set.Holders {
		m := w.hosts[h.ID-1]
		if w.churn != nil && (m.joins || m == w.churn.wiped) || m.gone || m.wiped || m.rotten {
			continue // its directory may be another one by now
		}
		if !m.hasObject(u.group, u.id, loss) {
			w.breaks(property.Objects, "host %d is said to hold object %v, and after a crash with %v it does not", h.ID, u.id, loss)
		}
	}
}

// appliedByAny returns the highest index that a replica of a group has applied.
func (w *world) appliedByAny(group uint64) (most uint64) {
	w.eachReplica(func(r *replica) {
		if r.id == group && r.group != nil {
			most = max(most, r.group.Status().Applied)
		}
	})
	return most
}

// checkHolders: when a configuration of the members is in force, each object that may be named is whole on
// the disks of a quorum of it, also after the worst crash. A directory that was lost, or is rotten, has it.
func (l *life) checkHolders(e event.MembersChanged) {
	w := l.w
	if w.objects == nil || l.replicas == nil {
		return
	}
	at := slices.IndexFunc(l.replicas, func(r *replica) bool { return r.id == e.Group })
	most := max(e.Version, w.appliedByAny(e.Group))
	if at < 0 || l.replicas[at].group == nil || l.replicas[at].group.Status().Applied+1 < most {
		return // (what is in the table of a member that is behind may have gone by now)
	}
	loss, _ := w.lossToSurvive()
	promoted := l.replicas[at].ghost.promoted(e)
	for _, s := range l.replicas[at].group.Objects() {
		has := func(id uint64) bool {
			h := w.hosts[id-1]
			return h.gone || h.wiped || h.rotten || w.churn != nil && h == w.churn.wiped || h.hasObject(e.Group, s.ID, loss)
		}
		if s.Held == 0 || s.Held > e.Version {
			continue
		}
		for _, id := range promoted {
			if !has(id) {
				w.breaks(property.Objects, "%s: member %d is promoted by entry %d, and does not have object %v, which may be named since entry %d", l.name, id, e.Version, s.ID, s.Held)
			}
		}
		if !isQuorum(e.Conf.Voters, has) || len(e.Conf.VotersOutgoing) > 0 && !isQuorum(e.Conf.VotersOutgoing, has) {
			w.breaks(property.Objects, "%s: with %v object %v, which may be named, is not on a quorum of disks, version %d: %+v", l.name, raft.DescribeConfState(e.Conf), s.ID, e.Version, s)
		}
	}
}

// promoted returns the voters of a configuration that were learners in the one before.
func (g *ghost) promoted(e event.MembersChanged) (ids []uint64) {
	before := uint64(0)
	for version := range g.rosters {
		if version < e.Version {
			before = max(before, version)
		}
	}
	for _, id := range e.Conf.Voters {
		if slices.Contains(g.rosters[before].Learners, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// hasObject reports whether the disk of a host has an object whole after a crash.
func (m *machine) hasObject(group uint64, id object.ID, loss crashfs.Loss) bool {
	name := path.Join(directory, "groups", fmt.Sprint(group), "objects", id.String(), "0000000000000001-0000000000000001", "MANIFEST")
	f, err := m.disk.Image(loss, nil).Open(name)
	if err == nil {
		f.Close()
	}
	return err == nil
}

// choose returns the sets that a command names: in most cases some that are held, or were.
func (o *objects) choose(group uint64, command string) []object.ID {
	if o == nil || len(o.begun) == 0 || o.rng.IntN(3) > 0 {
		return nil
	}
	var ids []object.ID
	from := o.ready
	if len(from) > 12 && o.rng.IntN(8) > 0 {
		from = from[len(from)-12:]
	}
	for range 1 + o.rng.IntN(2) {
		if len(from) > 0 && o.rng.IntN(20) > 0 {
			if u := pick(o.rng, from...); u.group == group && !slices.Contains(ids, u.id) {
				ids = append(ids, u.id)
			}
			continue
		}
		if u := pick(o.rng, o.begun...); u.group == group && !slices.Contains(ids, u.id) {
			ids = append(ids, u.id)
		}
		if o.rng.IntN(4) == 0 {
			ids = append(ids, object.ID{byte(1 + o.rng.IntN(200)), 99})
		}
	}
	slices.SortFunc(ids, func(a, b object.ID) int { return bytes.Compare(a[:], b[:]) })
	ids = slices.Compact(ids)
	if len(ids) > 0 {
		o.named[command] = ids
	}
	return ids
}

// head returns what comes before the text of a command.
func (o *objects) head(command string) []byte {
	data := make([]byte, host.CallRoom)
	if o == nil {
		return data
	}
	return object.AppendHead(data, o.named[command])
}

// UseObjects implements host.ObjectUser.
func (m callMachine) UseObjects(o *host.Objects) { m.replica.objects = o }

// useObjects reads what a command names, and keeps or releases it.
func (r *replica) useObjects(c *statemachine.Command) error {
	o := r.life.w.objects
	if o == nil {
		return nil
	}
	command := string(c.Data)
	if !slices.Equal(c.Objects, o.named[command]) {
		r.life.w.breaks(property.Objects, "%s gets %.20q with objects %v, and it names %v", r.name, command, c.Objects, o.named[command])
	}
	for _, id := range c.Objects {
		if err := r.readObject(id); err != nil {
			return err
		}
		r.life.w.count(ObjectsNamed)
		var err error
		switch hashOf(append(id[:], command...)) % 3 {
		case 0:
			err = r.objects.Keep(id)
		case 1:
			err = r.objects.Release(id)
		}
		if err != nil {
			r.life.w.breaks(property.Objects, "%s applies %.20q, and cannot keep or release %v: %v", r.name, command, id, err)
		}
	}
	return nil
}

// readObject demands that an object is here and has its content.
func (r *replica) readObject(id object.ID) error {
	w := r.life.w
	u := w.objects.uploads[id]
	if u == nil {
		w.breaks(property.Objects, "%s may use object %v, which was never uploaded", r.name, id)
	}
	f, err := r.objects.Open(id)
	var content []byte
	if err == nil {
		content, err = io.ReadAll(io.NewSectionReader(f, 0, f.Size()))
		_ = f.Close()
	}
	switch {
	case r.life.dead:
		return crashfs.ErrCrashed
	case err != nil && (r.life.sawError || r.life.sawRot || r.life.excusesShort(err) || r.life.excusesMove(err) || r.life.host.power.after > 0):
		return nil
	case err != nil:
		w.breaks(property.Objects, "%s may use object %v, and does not have it: %v", r.name, id, err)
	case !bytes.Equal(content, u.content):
		w.breaks(property.Objects, "%s has object %v with other bytes than were uploaded", r.name, id)
	}
	return nil
}

// refusedForObjects reports whether an error is that of a command that names what it must not.
func refusedForObjects(err error) bool {
	return errors.Is(err, object.ErrUnknown) || errors.Is(err, object.ErrNotHeld) || errors.Is(err, object.ErrRefused)
}

// haveAllObjects reports whether every member has all objects, and nothing else on its disk that it must not
// have any more.
func (w *world) haveAllObjects() bool {
	if w.objects == nil {
		return true
	}
	for r := range w.members() {
		if len(r.uploads) > 0 {
			return false
		}
		m := r.group.Metrics().Objects
		if m.Unheld > 0 || m.Lacking > 0 || m.Strays > 0 && !r.life.host.mayLeave {
			return false
		}
		if w.objects.life < time.Minute && slices.ContainsFunc(r.group.Objects(), func(s object.Set) bool { return !s.Kept }) { // a run does not last longer
			return false
		}
	}
	return true
}

// handOver makes another member lead each group in which sets have yet to go, and nothing else happens.
func (o *objects) handOver() {
	if o == nil {
		return
	}
	for r := range o.w.members() {
		if r.group.Status().Role == event.RoleLeader {
			r.group.StartTransfer(0)
		}
	}
}

// members yields each replica that is a member, works, and stays.
func (w *world) members() iter.Seq[*replica] {
	return func(yield func(*replica) bool) {
		for _, h := range w.hosts {
			if h.gone || h.alive == nil || h.alive.process == nil {
				continue
			}
			for _, r := range h.alive.replicas {
				if r.group != nil && !r.closing && r.group.Err() == nil && r.ghost.has(h.id) && !yield(r) {
					return
				}
			}
		}
	}
}

// checkObjects: members that have applied the same have the same objects, each whole.
func (w *world) checkObjects() {
	if w.objects == nil {
		return
	}
	first := map[uint64]*replica{}
	for r := range w.members() {
		all := r.group.Objects()
		if other := first[r.id]; other == nil {
			first[r.id] = r
		} else if a, b := fmt.Sprint(all), fmt.Sprint(other.group.Objects()); a != b && r.group.Status().Applied == other.group.Status().Applied {
			w.breaks(property.Objects, "%s has objects\n%s\nand %s has\n%s", r.name, a, other.name, b)
		}
		for i := range all {
			if all[i].Held > 0 {
				_ = r.readObject(all[i].ID)
			}
		}
	}
}

var errGone = errors.New("the client is gone")

// Objects runs a seed in which the groups have large objects; in every second one the members change. The
// error, if any, is a *Violation.
func Objects(o Options) (Faults, error) {
	r, err := Run(withObjects(o))
	return r.Faults, err
}

func withObjects(o Options) Options {
	o.calls, o.objects, o.churn = true, true, o.Seed%2 == 0
	return o
}
