package identity

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs"
)

// Identity says which host a directory belongs to, and with which hosts its cluster was founded. It is
// written when a host has opened its address and its log for the first time, and compared at every later
// start. Votes and acknowledgements given under one identity must not count under another.
//
// Invariant: identity and log name each other. The incarnation is the log's random id. The log is made
// first and the identity published last. So an identity without its log means that the log was removed, and
// with it what the host has promised. Rejected: an id of its own for the directory. With it, a host whose
// log alone was exchanged came back as itself.
//
// Decision 0005 says why cluster and list are fixed at the first start.
type Identity struct {
	Version int `json:"version"`
	// Cluster is Config.Cluster, or derived from Founders once.
	Cluster uint64 `json:"cluster"`
	Derived bool   `json:"derived"`
	ID      uint64 `json:"id"`
	// Incarnation names this directory to other hosts. It is wal.Log.ID.
	Incarnation transport.Incarnation `json:"incarnation"`
	// Founders is Config.Members as it was at the first start of a host that has founded the cluster; a host
	// that has joined it has none. Config.Members may change later.
	Founders []transport.Member `json:"founders"`
}

const (
	// File is the name of the file of an identity.
	File = "identity.json"
	// Version is the version of the file.
	Version = 3
)

// Settings is what the configuration of a host says about its directory.
type Settings struct {
	Dir         string
	Cluster, ID uint64            // Config.Cluster (0: derived from Members) and Config.ID
	Members     map[uint64]string // the founding list
	Joins       bool              // the host joins a cluster that others have founded
	InMemory    bool              // the log is in memory, and another one at each start
	Brought     bool              // the log is not of package wal (WithLog), and cannot be looked at before it is open
}

// Founding returns the identity that a new directory gets, except for its incarnation.
func (s Settings) Founding() Identity {
	id := Identity{Version: Version, Cluster: s.Cluster, ID: s.ID}
	if s.Joins {
		return id
	}
	for _, peer := range slices.Sorted(maps.Keys(s.Members)) {
		id.Founders = append(id.Founders, transport.Member{ID: peer, Addr: s.Members[peer]})
	}
	if s.Cluster == 0 {
		id.Derived, id.Cluster = true, DeriveCluster(id.Founders)
	}
	return id
}

// DeriveCluster derives a number from a founding list, addresses included. Different lists give different
// numbers: two clusters of hosts 1, 2 and 3 differ only in their addresses.
func DeriveCluster(founders []transport.Member) uint64 {
	sum := sha256.Sum256(transport.Introduction{Members: founders}.Append(nil))
	return max(1, binary.LittleEndian.Uint64(sum[:]))
}

// joined reports whether the host has joined a cluster that others have founded.
func (i Identity) joined() bool { return len(i.Founders) == 0 }

// FounderIDs returns the hosts of the founding list, in its order.
func (i Identity) FounderIDs() []uint64 {
	ids := make([]uint64, 0, len(i.Founders))
	for _, m := range i.Founders {
		ids = append(ids, m.ID)
	}
	return ids
}

// ReplaceLost says what to do about a directory, or a part of it, that cannot be had back.
const ReplaceLost = "start the host on an empty directory with Joins set, and replace the lost directory by it on another host (Plan, ReplaceMember)"

// RejectLog says why a host must not run on a log with this id, or returns nil.
func (i Identity) RejectLog(dir string, log transport.Incarnation) error {
	if i.Incarnation == log {
		return nil
	}
	return fmt.Errorf("millrace: directory %s of host %d has the log %v, but its %s names the log %v; another log was put here: put back the one that belongs to this directory; if that is lost, %s",
		dir, i.ID, log, File, i.Incarnation, ReplaceLost)
}

// rejectSettings says why a host with these settings must not run on a directory of this identity, or returns
// nil.
func (i Identity) rejectSettings(c Settings) error {
	want := c.Founding()
	switch {
	case i.ID != want.ID:
		return fmt.Errorf("millrace: directory %s belongs to host %d, Config.ID is %d; give each host its own directory", c.Dir, i.ID, c.ID)
	case c.Cluster == 0 && !i.Derived && !i.joined():
		return fmt.Errorf("millrace: directory %s belongs to cluster %d, Config.Cluster is 0; set it to %d", c.Dir, i.Cluster, i.Cluster)
	case c.Cluster != 0 && c.Cluster != i.Cluster:
		return fmt.Errorf("millrace: directory %s belongs to cluster %d, Config.Cluster is %d; give each host its own directory, and do not change a cluster's number after the first start",
			c.Dir, i.Cluster, c.Cluster)
	}
	return nil
}

// Read returns the identity in dir and whether there is one.
func Read(fsys vfs.FS, dir string) (have Identity, found bool, err error) {
	path := filepath.Join(dir, File)
	found, err = ReadFile(fsys, path, &have)
	switch {
	case errors.Is(err, ErrDamaged):
		return have, false, fmt.Errorf("%w; the file names the host of this directory; restore it from a backup before you start the host", err)
	case err != nil || !found:
		return have, false, err
	case have.Version != Version:
		return have, false, fmt.Errorf("millrace: %s has version %d, this program supports only version %d, and there is no migration; start the program that wrote the file, or begin a new cluster with a backup, in new directories",
			path, have.Version, Version)
	}
	return have, true, nil
}

// RejectManifest says why a snapshot is not one of a group in the directory of this identity, or returns nil.
// isFormer says that it was taken before the directory was rescued.
func (i Identity) RejectManifest(group uint64, m *snapshot.Manifest, isFormer bool) error {
	self := slices.IndexFunc(m.Members, func(member snapshot.Member) bool { return member.ID == i.ID })
	switch {
	case m.Cluster != i.Cluster && !isFormer:
		return fmt.Errorf("snapshot %v is of cluster %d, this host belongs to cluster %d", m.ID(), m.Cluster, i.Cluster)
	case m.Group != group:
		return fmt.Errorf("snapshot %v is of group %d, in the directory of group %d", m.ID(), m.Group, group)
	case self < 0:
		return fmt.Errorf("snapshot %v does not have host %d as a member", m.ID(), i.ID)
	case transport.Incarnation(m.Members[self].Incarnation) != i.Incarnation && !isFormer:
		return fmt.Errorf("snapshot %v is of directory %v of host %d, and this is directory %v", m.ID(), transport.Incarnation(m.Members[self].Incarnation), i.ID, i.Incarnation)
	}
	return nil
}
