package identity

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs"
)

// Admission decides which hosts this one talks with. A host is admitted if it was founded with the same
// list in the same cluster, and comes with the directory that its id came with before. A host with another
// directory has forgotten what it promised under its id. Its votes could elect a second leader.
//
// peers.json records the directory of each id, durably before anything from that host counts. This narrows
// the danger and does not remove it: a host that has never heard of the lost directory accepts the new one.
//
// A copy of a directory has the same id. Each life of a directory has a higher generation than the one before
// (the log's fence), and a random number drawn for it. A host with a lower generation, or with the same
// generation and another number, runs on a copy or on a restored backup. So does a host whose earlier lives
// are not the earlier lives that were heard (lives.go).
type Admission struct {
	self   transport.Introduction
	fs     vfs.FS
	dir    string
	logger *slog.Logger

	mu        lock.Mutex
	known     map[uint64]PeerRecord
	waiting   map[PeerRecord]int // connections of a life that wait until it is written
	unwritten map[uint64]bool    // peers whose record is in memory only
	refused   map[uint64]string  // why a host was refused last

	// retired are directories that were replaced, the latest last. None of them comes back.
	retired map[uint64][]transport.Incarnation
	// leaving are directories that are being replaced: their hosts are not heard any more.
	leaving map[uint64]transport.Incarnation
	// review ends the connections of a host that Keeps does not keep (transport.Reviewer).
	review func(id uint64)
	// turnedAway is the directory for which a host was refused last. A plan may replace its old one by it.
	// Only hosts that are known, or members, are noted.
	turnedAway map[uint64]NewDirectory

	writing chan struct{} // holds a token while no call writes the file; mu is not held during a write
}

// NewDirectory is a directory that may replace another, and the key with which its host came.
type NewDirectory struct {
	Incarnation transport.Incarnation
	Key         membership.Key // zero: without TLS
}

// PeerRecord is what this host records of a peer: its last admitted life.
type PeerRecord struct {
	ID          uint64                `json:"id"`
	Incarnation transport.Incarnation `json:"incarnation"`
	Generation  uint64                `json:"generation"`
	Life        uint64                `json:"life"`
	Addr        string                `json:"addr"` // where it said that it listens
}

const (
	// PeersFile is the name of the file that records the directory of each other host.
	PeersFile        = "peers.json"
	peersFileVersion = 2
)

// MaxHosts bounds the hosts that one host knows, and with them its connections.
const MaxHosts = 1 << 12

// MaxAddrBytes is the longest address of a host: a domain name of 253 bytes, and a port.
const MaxAddrBytes = 260

// ErrTooManyHosts refuses one more than MaxHosts.
var ErrTooManyHosts = errors.New("millrace: this host knows too many others")

type peersText struct {
	Version int          `json:"version"`
	Peers   []PeerRecord `json:"peers"`
	// Retired are the directories of each host that were replaced.
	Retired map[uint64][]transport.Incarnation `json:"retired,omitempty"`
}

// maxRetired bounds the directories of one host that are remembered as replaced. An older one is refused by
// the rosters of its groups only.
const maxRetired = 16

// NewAdmission reads what is recorded in dir. review ends the connections of a host that Keeps does not keep
// any more; it is called without a lock held.
func NewAdmission(fsys vfs.FS, dir string, self transport.Introduction, review func(id uint64), logger *slog.Logger) (*Admission, error) {
	if err := self.Validate(); err != nil {
		return nil, fmt.Errorf("millrace: other hosts would refuse this host's introduction: %w", err)
	}
	a := &Admission{self: self, fs: fsys, dir: dir, logger: logger, known: map[uint64]PeerRecord{}, waiting: map[PeerRecord]int{}, unwritten: map[uint64]bool{}, refused: map[uint64]string{}, turnedAway: map[uint64]NewDirectory{}, leaving: map[uint64]transport.Incarnation{}, review: review, retired: map[uint64][]transport.Incarnation{}, writing: make(chan struct{}, 1)}
	a.writing <- struct{}{}
	path := filepath.Join(dir, PeersFile)
	var text peersText
	found, err := ReadFile(fsys, path, &text)
	switch {
	case errors.Is(err, ErrDamaged):
		return nil, fmt.Errorf("%w; the file records the directory of each other host; restore it, or delete it if all other hosts still have their original directories", err)
	case err != nil:
		return nil, err
	case found && text.Version != peersFileVersion:
		return nil, fmt.Errorf("millrace: %s has version %d, this program supports only version %d, and there is no migration; start the program that wrote it", path, text.Version, peersFileVersion)
	}
	for _, p := range text.Peers {
		a.known[p.ID] = p
	}
	maps.Copy(a.retired, text.Retired)
	return a, nil
}

// Admit decides about a connection of a peer (transport.Receiver). vouched says that a group here is bound
// to the directory of the peer, so that directory may come in place of another.
func (a *Admission) Admit(peer transport.Introduction, remote string, vouched bool) error {
	if err := a.RejectFounding(peer); err != nil {
		return err
	}
	now := PeerRecord{ID: peer.ID, Incarnation: peer.Incarnation, Generation: peer.Generation, Life: peer.Life}
	now.Addr = fmt.Sprintf("%.*s", MaxAddrBytes, peer.Addr) // more is no address: peers.json must stay readable
	if known, err := a.recall(now, peer, remote, vouched); known || err != nil {
		return err
	}
	if !a.waits(now) {
		a.logger.Warn("the disk hangs; until it answers, the new life of a peer is recorded in memory only", "peer", now.ID)
		return nil
	}
	defer a.waited(now)
	<-a.writing
	defer func() { a.writing <- struct{}{} }()
	switch known, err := a.recall(now, peer, remote, vouched); { // another connection may have recorded it meanwhile
	case err != nil:
		return err
	case known && a.isWritten(now.ID):
		return nil
	}
	a.endBefore(now)
	return a.remember(now)
}

// endBefore ends the connections of the directory that now takes the place of. Nothing that they bring may
// count as said by the new one, so it is called before that is recorded.
func (a *Admission) endBefore(now PeerRecord) {
	a.mu.Lock()
	before, heard := a.known[now.ID]
	replaces := heard && before.Incarnation != now.Incarnation
	if replaces {
		a.leaving[now.ID] = before.Incarnation
	}
	a.mu.Unlock()
	if replaces {
		a.review(now.ID)
	}
}

// IsRetired reports whether another directory has taken the place of one.
func (a *Admission) IsRetired(id uint64, i transport.Incarnation) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Contains(a.retired[id], i)
}

// leaves reports whether a directory is being replaced. The caller holds mu.
func (a *Admission) leaves(id uint64, i transport.Incarnation) bool {
	leaving, is := a.leaving[id]
	return is && leaving == i
}

// Keeps reports whether a connection of a host, which was admitted, may go on.
func (a *Admission) Keeps(peer transport.Introduction) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	known, heard := a.known[peer.ID]
	return heard && known.Incarnation == peer.Incarnation && !a.leaves(peer.ID, peer.Incarnation)
}

func (a *Admission) isWritten(id uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.unwritten[id]
}

// waits records that a connection waits until its peer is recorded. It returns false if two connections of
// the same life already wait and their directory is known. One each way is usual; if there is a third, the
// peer has given one up, so the disk hangs. Then the peer is admitted without waiting. Otherwise a leader
// whose disk hangs would keep a member that restarts away from all others. The waiting connections write the
// record in the end.
func (a *Admission) waits(now PeerRecord) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	before, heard := a.known[now.ID]
	if a.waiting[now] >= 2 && heard && before.Incarnation == now.Incarnation {
		a.known[now.ID], a.unwritten[now.ID] = now, true
		return false
	}
	a.waiting[now]++
	return true
}

func (a *Admission) waited(now PeerRecord) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting[now]--; a.waiting[now] == 0 {
		delete(a.waiting, now)
	}
}

// recall reports whether this life of a peer is known, and rejects a life that must not come after what is
// known.
func (a *Admission) recall(now PeerRecord, peer transport.Introduction, remote string, vouched bool) (known bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.Contains(a.retired[now.ID], now.Incarnation) || a.leaves(now.ID, now.Incarnation) {
		return false, RefuseDirectory("host %d, which speaks from %s, has directory %v, which was replaced: it has forgotten what its successor has promised, or never knew it; stop this host, or start it with an empty directory and Joins, and replace it again (Plan, ReplaceMember)",
			now.ID, remote, now.Incarnation)
	}
	before, heard := a.known[now.ID]
	if !heard || vouched && before.Incarnation != now.Incarnation {
		return false, nil
	}
	if err := rejectLife(before, now, peer.LifeAt(before.Generation), remote); err != nil {
		if before.Incarnation != now.Incarnation {
			a.turnedAway[now.ID] = NewDirectory{now.Incarnation, peer.Key}
		}
		return false, err
	}
	return before.Life == now.Life && before.Generation == now.Generation, nil
}

// remember records now as what is known of a peer. The caller has the token.
func (a *Admission) remember(now PeerRecord) error {
	a.mu.Lock()
	next, retired := maps.Clone(a.known), maps.Clone(a.retired)
	a.mu.Unlock()
	before, heard := next[now.ID]
	if !heard && len(next) >= MaxHosts {
		return fmt.Errorf("%w: %d, and host %d comes; delete %s if all other hosts still have their original directories", ErrTooManyHosts, len(next), now.ID, filepath.Join(a.dir, PeersFile))
	}
	next[now.ID] = now
	if heard && before.Incarnation != now.Incarnation {
		list := append(slices.Clone(retired[now.ID]), before.Incarnation)
		retired[now.ID] = list[max(0, len(list)-maxRetired):]
	}
	text := peersText{Version: peersFileVersion, Retired: retired}
	for _, id := range slices.Sorted(maps.Keys(next)) {
		text.Peers = append(text.Peers, next[id])
	}
	if err := WriteFile(a.fs, a.dir, PeersFile, text); err != nil {
		// On a full disk, or without a descriptor, a member that restarted must still be admitted, or votes
		// for which the log reserves space are lost.
		if !heard || before.Incarnation != now.Incarnation || !IsFull(err) && !vfs.IsShort(err) {
			return fmt.Errorf("host %d cannot record the directory of host %d: %w", a.self.ID, now.ID, err)
		}
		a.logger.Warn("the disk is full, or no file can be opened; the new life of a peer is recorded in memory only", "peer", now.ID, "error", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if latest := a.known[now.ID]; !a.unwritten[now.ID] || latest == now { // or a later life is known, and waits
		a.known[now.ID] = now
		delete(a.unwritten, now.ID)
	}
	a.retired = retired
	delete(a.turnedAway, now.ID)
	delete(a.leaving, now.ID)
	return nil
}

// RejectFounding rejects a host that was founded differently.
func (a *Admission) RejectFounding(peer transport.Introduction) error {
	return rejectFounding(a.self, peer)
}

// rejectFounding rejects a host that was founded differently. If an operator chose the cluster's number,
// addresses may be spelled differently. If the number is derived, only the lists distinguish two clusters
// with the same ids.
func rejectFounding(self, peer transport.Introduction) error {
	lists := fmt.Sprintf("host %d with %s, host %d with %s", self.ID, transport.ListText(self.Members), peer.ID, transport.ListText(peer.Members))
	ids := func(a, b transport.Member) bool { return a.ID == b.ID }
	switch joins := len(self.Members) == 0 || len(peer.Members) == 0; {
	case joins && self.Cluster != peer.Cluster:
		return fmt.Errorf("hosts %d and %d belong to different clusters, %d and %d (%s); an address in Config.Members or a Config.Cluster is wrong, or one of them was rescued; correct the address, or make the other one join with an empty directory and the number of the cluster that works",
			self.ID, peer.ID, self.Cluster, peer.Cluster, lists)
	case joins:
		return nil
	case self.Derived != peer.Derived:
		return fmt.Errorf("hosts %d and %d belong to different clusters, because Config.Cluster was set at the first start of only one of them; set Config.Cluster for all hosts or for none (their lists: %s)",
			self.ID, peer.ID, lists)
	case !self.Derived && self.Cluster != peer.Cluster:
		return fmt.Errorf("hosts %d and %d belong to different clusters, %d and %d (%s); an address in Config.Members or a Config.Cluster is wrong; correct the address, or start the host whose number is wrong on an empty directory with the number of the others",
			self.ID, peer.ID, self.Cluster, peer.Cluster, lists)
	case self.Derived && self.Cluster != peer.Cluster && slices.Equal(self.Members, peer.Members):
		return fmt.Errorf("hosts %d and %d belong to different clusters, %d and %d, of the same hosts (%s): they were restored from different archives, or only one of them was; restore all hosts from the same archive, into new directories",
			self.ID, peer.ID, self.Cluster, peer.Cluster, transport.ListText(self.Members))
	case !slices.EqualFunc(self.Members, peer.Members, ids) || self.Derived && (self.Cluster != peer.Cluster || !slices.Equal(self.Members, peer.Members)):
		return fmt.Errorf("hosts %d and %d were founded with different lists: %s; an address in Config.Members leads to another cluster, or the first starts of the two had different Config.Members; correct the address, or start the host whose list is wrong on an empty directory, with exactly the list of the others; if hosts must spell addresses differently, found the cluster with Config.Cluster; a host that comes later needs Config.Joins or a join token",
			self.ID, peer.ID, lists)
	case !slices.ContainsFunc(self.Members, func(m transport.Member) bool { return m.ID == peer.ID }):
		return fmt.Errorf("host %d is not in its own founding list: %s", peer.ID, transport.ListText(peer.Members))
	}
	return nil
}

// rejectLife rejects a life that cannot follow before: one on another directory, or an earlier or a second
// life of the same directory. was is what now says of the life with before's generation; 0: nothing.
func rejectLife(before, now PeerRecord, was uint32, remote string) error {
	switch {
	case before.Incarnation != now.Incarnation:
		return RefuseDirectory("host %d, which listens on %s and speaks from %s, has another directory than host %d had before, on %s: if two hosts run under one id, stop one of them; if host %d has lost its directory, and with it its votes, restore the directory, or start it on an empty one with a join token for host %d (JoinTokenOptions.Member), or with Joins set, and then replace the lost directory by its new one on another host (Plan, ReplaceMember)",
			now.ID, now.Addr, remote, now.ID, before.Addr, now.ID, now.ID)
	case now.Generation < before.Generation || now.Generation == before.Generation && now.Life != before.Life:
		return RefuseDirectory("host %d, which listens on %s and speaks from %s, runs on a copy or an old backup of the directory that host %d had before, on %s (life %d of the directory, life %d was seen): stop it, and start the host on its newest directory; if that is lost, %s",
			now.ID, now.Addr, remote, now.ID, before.Addr, now.Generation, before.Generation, ReplaceLost)
	case was != 0 && was != uint32(before.Life):
		return RefuseDirectory("host %d, which listens on %s and speaks from %s, runs on a copy or an old backup of the directory that host %d had before, on %s (it is in its life %d, but its life %d was another one than the one that was seen): stop it, and start the host on its newest directory; if that is lost, %s",
			now.ID, now.Addr, remote, now.ID, before.Addr, now.Generation, before.Generation, ReplaceLost)
	}
	return nil
}

// RefuseDirectory returns the refusal of a host because of its directory.
func RefuseDirectory(format string, args ...any) error {
	return &transport.DirectoryRefused{Why: fmt.Sprintf(format, args...)}
}

// Last returns the life of a host that was admitted last; zero if there is none.
func (a *Admission) Last(id uint64) PeerRecord {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.known[id]
}

// Records returns the last life of each host that is known, by id.
func (a *Admission) Records() (all []PeerRecord) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(a.known)) {
		all = append(all, a.known[id])
	}
	return all
}

// Incarnation returns the directory with which a host has come.
func (a *Admission) Incarnation(id uint64) (i transport.Incarnation, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, known := a.known[id]
	return p.Incarnation, known
}

// IsNews reports whether a host is refused for another reason than the last time. Hosts that are not in the
// founding list count as one.
func (a *Admission) IsNews(id uint64, remote string, err error) bool {
	why := strings.ReplaceAll(err.Error(), remote, "") // its port is another one each time
	if !slices.ContainsFunc(a.self.Members, func(m transport.Member) bool { return m.ID == id }) {
		id = 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refused[id] == why {
		return false
	}
	a.refused[id] = why
	return true
}

// Introduction returns how the host introduces itself.
func (i Identity) Introduction(generation, life uint64, addr string) transport.Introduction {
	return transport.Introduction{
		ID: i.ID, Cluster: i.Cluster, Derived: i.Derived, Incarnation: i.Incarnation, Members: i.Founders,
		Generation: generation, Life: life, Addr: addr,
	}
}

// Self returns how this host introduces itself.
func (a *Admission) Self() transport.Introduction { return a.self }

// Presented returns the directory with which a host could become a member. It is the directory with which
// the host was refused last, if isNew says so. Otherwise it is the directory with which the host was
// admitted, if that is new. In that case isAdmitted is true, and the key is not set. isNew must not block.
func (a *Admission) Presented(id uint64, isNew func(transport.Incarnation) bool) (d NewDirectory, isAdmitted bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if d, ok := a.turnedAway[id]; ok && isNew(d.Incarnation) {
		return d, false
	}
	if p, ok := a.known[id]; ok && isNew(p.Incarnation) {
		return NewDirectory{Incarnation: p.Incarnation}, true
	}
	return NewDirectory{}, false
}

// TurnAway notes with which directory a host was refused.
func (a *Admission) TurnAway(peer transport.Introduction) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turnedAway[peer.ID] = NewDirectory{peer.Incarnation, peer.Key}
}
