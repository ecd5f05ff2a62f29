package sim

import (
	"time"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/vfs/crashfs"
)

// How the doctor (explain.go) makes a cluster ill, an ailment at a time, and what it wants to hear of each.

// begin makes the cluster ill.
func (d *doctor) begin() {
	w, timeout := d.w, d.w.config.ElectionTimeout
	leader := w.leader()
	var followers []*machine
	for _, h := range w.hosts {
		if h != leader {
			followers = append(followers, h)
		}
	}
	follower := pick(d.rng, followers...)
	switch d.kind {
	case NothingWrong:
		w.clients.pace = time.Millisecond
		d.watch(30*timeout, nil)
	case NothingWrongIdle:
		d.watch(60*timeout, nil)
	case NothingButHandOver:
		for range 5 {
			if l := w.leader(); l != nil {
				l.alive.process.HandOver()
			}
			d.watch(between(d.rng, 0, 6*timeout), nil)
		}
	case NothingButElection:
		d.elect(leader)
	case QuorumGone:
		d.loseQuorum(leader, followers)
	case OneNeverCame:
		d.startWithoutOne()
	case FollowerHangs, LeaderHangs:
		if d.kind == LeaderHangs { // in a few seeds the election takes longer, and this host does not learn of it at once
			d.mayElect()
			d.about(leader, diagnosis.CodeNoLeader, diagnosis.CodeMemberSilent)
		}
		d.hangDisk(pickOne(d.kind == LeaderHangs, leader, follower))
	case LeaderSlow:
		leader.slowDisk = between(d.rng, 11*timeout/10, 18*timeout/10)
		d.want(leader, diagnosis.CodeDiskSlow, 0)
		d.heal = func() { leader.slowDisk = 0 }
		d.about(leader, diagnosis.CodeDiskSlow, diagnosis.CodeSlowMember, diagnosis.CodeMemberSilent)
		d.mayElect()
	case FollowerFull, LeaderFull:
		d.fillDisk(pickOne(d.kind == LeaderFull, leader, follower))
	case ProcessPaused:
		h := pick(d.rng, w.hosts...)
		w.count(Pauses)
		h.pausedUntil = w.now + between(d.rng, 15*timeout/10, 6*timeout)
		d.want(h, diagnosis.CodePaused, 0)
		d.about(h, diagnosis.CodeMemberUnreachable, diagnosis.CodeMemberSilent, diagnosis.CodeSlowMember, diagnosis.CodeDiskStalled)
	case DirectoryWiped:
		d.wipe(leader, follower)
	case FollowerSlow:
		follower.slowDisk = 85 * time.Millisecond
		d.want(leader, diagnosis.CodeSlowMember, follower.id)
		d.heal = func() { follower.slowDisk = 0 }
	case FollowerDown:
		follower.crash(crashfs.LoseNothing)
		d.want(leader, diagnosis.CodeMemberUnreachable, follower.id)
		d.heal = follower.start
		d.about(follower, diagnosis.CodeSlowMember)
	case FollowerClosed:
		d.closeGroup(leader, follower)
	case FollowerFailed:
		// All of them fail: a single error may hit the segment that the log prepares ahead, which it
		// survives.
		follower.trouble.failing = []crashfs.OpKind{crashfs.OpSync, crashfs.OpWrite}
		d.want(follower, diagnosis.CodeStopped, 0)
		d.want(leader, diagnosis.CodeMemberSilent, follower.id)
		d.heal = func() {
			follower.trouble.failing = nil
			follower.close()
			follower.start()
		}
		d.about(follower, diagnosis.CodeSlowMember)
	case MachineStuck:
		d.hangMachine(leader, follower)
	case TooManyCommands:
		d.flood(leader)
	}
}

func pickOne(first bool, a, b *machine) *machine {
	if first {
		return a
	}
	return b
}

// elect closes the leader's group, so that the others elect another leader, and opens it again.
func (d *doctor) elect(leader *machine) {
	w := d.w
	r := leader.alive.replicas[0]
	r.closing = true
	w.nemesis.reopen(r)
	w.runUntil(w.now+w.config.ElectionTimeout, func() bool { return leader.alive.replicas[0] != r })
	d.about(leader, diagnosis.CodeSlowMember)
	d.mayElect()
	d.watch(20*w.config.ElectionTimeout, nil)
}

// mayElect allows hosts to say that there is no leader while there is none for two election timeouts: in a
// few seeds an election takes longer.
func (d *doctor) mayElect() {
	was := d.allows
	d.allows = func(v verdict) bool {
		return was(v) || v.code == diagnosis.CodeNoLeader && d.w.now-d.ledAt > 2*d.w.config.ElectionTimeout
	}
}

// loseQuorum leaves no quorum that can talk.
func (d *doctor) loseQuorum(leader *machine, followers []*machine) {
	w := d.w
	for _, h := range w.hosts {
		d.about(h, diagnosis.CodeMemberUnreachable, diagnosis.CodeSlowMember)
	}
	if d.rng.IntN(2) == 0 {
		for _, a := range w.hosts {
			d.want(a, diagnosis.CodeNoQuorum, 0)
			for _, b := range w.hosts {
				w.net.cut[link{a.id, b.id}] = a != b
			}
		}
		return
	}
	stays := pick(d.rng, w.hosts...)
	d.want(stays, diagnosis.CodeNoQuorum, 0)
	for _, h := range w.hosts {
		if h != stays {
			h.crash(crashfs.LoseNothing)
		}
	}
	d.heal = func() {
		for _, h := range w.hosts {
			h.start()
		}
		d.about(stays, diagnosis.CodeNoQuorum)
	}
}

// startWithoutOne starts a new cluster, of which one host does not come.
func (d *doctor) startWithoutOne() {
	w := d.w
	late := pick(d.rng, w.hosts...)
	for _, h := range w.hosts {
		if h != late {
			h.start()
			d.want(h, diagnosis.CodeNotFounded, 0)
		}
	}
	w.startClients()
	w.clients.pace = 2 * time.Millisecond
	d.about(late, diagnosis.CodeNotFounded)
	d.heal = late.start
}

// hangDisk hangs a disk until it is healed.
func (d *doctor) hangDisk(h *machine) {
	w := d.w
	w.count(DiskHangs)
	d.want(h, diagnosis.CodeDiskStalled, 0)
	d.about(h, diagnosis.CodeDiskStalled, diagnosis.CodeDiskSlow, diagnosis.CodeSlowMember)
	h.stallUntil = w.now + between(d.rng, 12*w.config.ElectionTimeout, 20*w.config.ElectionTimeout)
	if h != w.leader() {
		d.want(w.leader(), diagnosis.CodeDiskStalled, h.id)
	}
	d.heal = func() { d.watch(h.stallUntil-w.now, nil) }
}

// fillDisk fills a disk, for all entries.
func (d *doctor) fillDisk(h *machine) {
	d.want(h, diagnosis.CodeDiskFull, 0)
	d.allows = func(v verdict) bool {
		return v.member == h.id && v.by != h.id && (v.code == diagnosis.CodeDiskStalled || v.code == diagnosis.CodeSlowMember)
	}
	if l := d.w.leader(); h != l {
		d.want(l, diagnosis.CodeDiskStalled, h.id)
	}
	h.fill(func(int) int { return 1 })
	d.heal = h.mend
}

// wipe brings a follower back with an empty directory, and then with its own.
func (d *doctor) wipe(leader, h *machine) {
	disk := h.disk
	h.crash(crashfs.LoseNothing)
	h.wipe()
	h.start()
	d.want(h, diagnosis.CodeIdentityRefused, 0)
	d.want(h, diagnosis.CodeStopped, 0)
	d.want(leader, diagnosis.CodeIdentityRefused, h.id)
	d.allows = func(v verdict) bool {
		switch {
		case v.by == h.id:
			return v.code == diagnosis.CodeIdentityRefused || v.code == diagnosis.CodeNotFounded
		case v.member == h.id:
			return v.code == diagnosis.CodeIdentityRefused || v.code == diagnosis.CodeMemberUnreachable || v.code == diagnosis.CodeSlowMember
		}
		return false
	}
	d.heal = func() {
		h.crash(crashfs.LoseNothing)
		h.disk, h.wiped = disk, false
		h.start()
	}
}

// closeGroup closes the group on a follower, and opens it again.
func (d *doctor) closeGroup(leader, h *machine) {
	w := d.w
	if d.rng.IntN(2) == 0 {
		w.clients.pace = time.Hour // the group is asleep
		d.watch(10*w.config.ElectionTimeout, nil)
	}
	old := h.alive.replicas[0]
	old.closing = true
	d.want(leader, diagnosis.CodeMemberSilent, h.id)
	d.about(h, diagnosis.CodeSlowMember)
	if err := old.group.Close(ended); err == nil {
		w.violate("%s is closed at once", old.name)
	}
	d.heal = func() {
		w.clients.pace = 2 * time.Millisecond
		w.clients.schedule()
		w.nemesis.reopen(old)
	}
}

// hangMachine makes the state machine of a host hang.
func (d *doctor) hangMachine(leader, follower *machine) {
	w := d.w
	h := pick(d.rng, leader, follower)
	d.want(h, diagnosis.CodeApplyStuck, 0)
	if d.rng.IntN(2) == 0 {
		h.machineUntil = w.now + 20*w.config.ElectionTimeout // no lane works
		d.heal = func() { d.watch(h.machineUntil-w.now, nil) }
		return
	}
	w.hangs.hangsAt = func(l *life, _ statemachine.Entry) time.Duration {
		if l.host == h {
			return forever
		}
		return 0
	}
	d.heal = w.hangs.release
}

// flood submits more than the memory is for.
func (d *doctor) flood(leader *machine) {
	w := d.w
	d.want(leader, diagnosis.CodeOverloaded, 0)
	d.allows = func(v verdict) bool { return v.code == diagnosis.CodeOverloaded || v.code == diagnosis.CodeSlowMember }
	d.during = func() {
		if leader.alive.process == nil || !leader.alive.replicas[0].leads() {
			return
		}
		r := leader.alive.replicas[0]
		for range 64 {
			w.clients.submitTo(r)
		}
	}
	d.heal = func() { d.during, w.clients.pace = nil, 50*time.Millisecond }
}
